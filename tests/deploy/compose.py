"""The compose file as ``docker compose`` reads it: variables filled in, merges done."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[2]
_VARIABLE = re.compile(r"\$\$|\$\{(?P<name>\w+)(?:(?P<rule>:-|:\?)(?P<text>[^}]*))?\}")


class VariableMissing(Exception):
    """A variable without which the file cannot be used is not set."""


def load_compose(environ: Mapping[str, str]) -> dict[str, Any]:
    """Read the compose file with ``environ``.

    Raises:
        VariableMissing: the message is what ``docker compose`` would say.
    """
    filled: dict[str, Any] = _fill(yaml.safe_load((ROOT / "docker-compose.yaml").read_text()), environ)
    return filled


def _fill(value: Any, environ: Mapping[str, str]) -> Any:
    if isinstance(value, str):
        return _VARIABLE.sub(lambda match: _choose(match, environ), value)
    if isinstance(value, dict):
        return {key: _fill(inner, environ) for key, inner in value.items()}
    return [_fill(inner, environ) for inner in value] if isinstance(value, list) else value


def _choose(match: re.Match[str], environ: Mapping[str, str]) -> str:
    if match[0] == "$$":
        return "$"
    given = environ.get(match["name"], "")
    if not given and match["rule"] == ":?":
        raise VariableMissing(f"{match['name']}: {match['text']}")
    return given or match["text"] or ""


def read_dotenv(text: str) -> dict[str, str]:
    """Read a .env file."""
    pairs = (line.split("=", 1) for line in text.splitlines() if "=" in line and not line.startswith("#"))
    return dict(pairs)
