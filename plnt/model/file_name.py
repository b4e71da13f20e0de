"""Which names of a source's files are safe to make on disk; the names come from strangers."""

import re
from collections.abc import Iterable

MAX_COMPONENT_BYTES = 255
MAX_PATH_BYTES = 1024
MAX_DEPTH = 16
OWN_PREFIX = ".plnt"
"""Names that the cache keeps for itself in a tree."""

_FORBIDDEN = re.compile(r"[\x00-\x1f\x7f\\]")


def find_name_fault(name: str) -> str:
    """Say why ``name`` must not become a file below a folder; empty when it is safe."""
    if name.startswith("/"):
        return "is absolute"
    if _FORBIDDEN.search(name):
        return "holds a control character or a backslash"
    if not name.isascii() and any(0xD800 <= ord(letter) <= 0xDFFF for letter in name):
        return "is not valid UTF-8"
    parts = name.split("/")
    if len(name.encode()) > MAX_PATH_BYTES or len(parts) > MAX_DEPTH:
        return f"is longer than {MAX_PATH_BYTES} bytes or deeper than {MAX_DEPTH} folders"
    return next((fault for part in parts if (fault := _find_component_fault(part))), "")


def _find_component_fault(part: str) -> str:
    if part in {"", ".", ".."}:
        return f"has {part!r} as a folder or file"
    if len(part.encode()) > MAX_COMPONENT_BYTES:
        return f"has a part longer than {MAX_COMPONENT_BYTES} bytes"
    if re.match(r"[A-Za-z]:", part):
        return "holds a drive letter"
    if part.lower().startswith(OWN_PREFIX):
        return f"starts with {OWN_PREFIX!r}, which the cache keeps for itself"
    return ""


def find_collision(names: Iterable[str]) -> str:
    """Say which two names cannot both exist in one folder, case folded; empty when all can."""
    files: dict[str, str] = {}
    folders: dict[str, str] = {}
    for name in names:
        folded = name.casefold()
        if folded in files:
            return f"{name!r} and {files[folded]!r} differ in case only"
        files[folded] = name
        parts = folded.split("/")
        folders.update({"/".join(parts[:depth]): name for depth in range(1, len(parts))})
    clash = next((path for path in files if path in folders), "")
    return f"{files[clash]!r} is a file and the folder of {folders[clash]!r}" if clash else ""
