"""How the stubbed model behaves: ``stub.json`` in its folder, so that another storageUri is another engine.

Example::

    {"ttftMs": 30, "tpotMs": 5, "loadSeconds": 1, "faults": {"crashAfterSeconds": 3, "exitCode": 139}}

Every key is optional; an unknown one is an error, since a misspelled fault would test nothing.
"""

import json
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, TypeVar

FILE = "stub.json"


class BehaviourInvalid(Exception):
    """``stub.json`` says something that the stub does not know."""


@dataclass(frozen=True, slots=True)
class Faults:
    """What goes wrong; nothing by default."""

    crash_after_requests: int | None = None
    """Exit once so many completions were answered."""
    crash_after_seconds: float | None = None
    """Exit so many seconds after listening began."""
    exit_code: int | None = None
    """Exit code of those crashes (default 1); given without one of them, the engine exits with it while it loads."""
    error_in_band: bool = False
    """Send an error object in the stream after some tokens, with status 200."""
    no_done: bool = False
    """End streams without ``[DONE]`` and without a finish reason."""
    no_usage: bool = False
    """Send no usage."""
    http_500_every: int | None = None
    """Answer every n-th completion with status 500."""
    stall_after_tokens: int | None = None
    """Send so many tokens of each answer and then nothing, with the connection open."""
    not_ready: bool = False
    """Answer health requests with 503 for ever."""


@dataclass(frozen=True, slots=True)
class Behaviour:
    """Speed of the stubbed model."""

    ttft_ms: float = 30
    """From a request to its first token, in milliseconds."""
    tpot_ms: float = 5
    """Between two tokens, in milliseconds."""
    load_seconds: float = 0.5
    """From the start to listening, in seconds."""
    faults: Faults = field(default_factory=Faults)


_Shape = TypeVar("_Shape", Behaviour, Faults)


def read_behaviour(folder: Path) -> Behaviour:
    """Read the folder's ``stub.json``; the defaults when there is none.

    Raises:
        BehaviourInvalid: it is no JSON object of known keys.
    """
    path = folder / FILE
    if not path.exists():
        return Behaviour()
    try:
        data = json.loads(path.read_text())
    except ValueError as error:
        raise BehaviourInvalid(f"{FILE}: {error}") from None
    return parse_behaviour(data)


def parse_behaviour(data: dict[str, Any]) -> Behaviour:
    """Turn the JSON form into a behaviour.

    Raises:
        BehaviourInvalid: a key is unknown.
    """
    plain = {key: value for key, value in data.items() if key != "faults"}
    return _fill(Behaviour, plain, faults=_fill(Faults, data.get("faults") or {}))


def _fill(shape: type[_Shape], data: dict[str, Any], **more: Any) -> _Shape:
    known = {_camel(item.name): item.name for item in fields(shape)}
    unknown = sorted(set(data) - set(known))
    if unknown:
        raise BehaviourInvalid(f"{FILE}: unknown key {unknown[0]!r}; known: {', '.join(sorted(known))}")
    return shape(**{known[key]: value for key, value in data.items()}, **more)


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)
