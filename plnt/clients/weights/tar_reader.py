"""Reads a tar stream that a stranger made: every length is bounded, and nothing is ever made on disk here.

The standard library's reader takes extended headers of any length into memory; this one does not.
"""

import zlib
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

BLOCK = 512
MAX_EXTENDED_BYTES = 1 << 20
"""Longest extended header; a name has at most some kilobytes."""
MAX_RATIO, SLACK_BYTES = 20, 64 << 20
"""Most bytes that one compressed byte may become, beyond the slack; weights compress by less than 2."""
_CHUNK = 1 << 18

Read = Callable[[int], bytes]


class ArchiveFault(Exception):
    """The archive is broken or hostile; the text ends a sentence that begins with its name."""


class ArchiveCut(ArchiveFault):
    """The stream ended inside a member."""


class Kind(StrEnum):
    """What a member is."""

    FILE = "file"
    FOLDER = "folder"
    LINK = "link"
    DEVICE = "device"


_KINDS = {
    b"0": Kind.FILE, b"\0": Kind.FILE, b"7": Kind.FILE, b"5": Kind.FOLDER, b"1": Kind.LINK, b"2": Kind.LINK,
    b"3": Kind.DEVICE, b"4": Kind.DEVICE, b"6": Kind.DEVICE,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Member:
    """One member's head."""

    name: str
    size: int
    kind: Kind


class Stream(Protocol):
    """Plain bytes of an archive."""

    def read(self, count: int, /) -> bytes:
        """Give up to ``count`` bytes; none at the end."""


class Gunzip:
    """Decompresses gzip, member after member, up to a ratio."""

    def __init__(self, source: Stream) -> None:
        self._source = source
        self._inflate = zlib.decompressobj(wbits=31)
        self._rest = b""
        self._taken = self._given = 0

    def read(self, count: int, /) -> bytes:
        """Give up to ``count`` bytes; none at the end.

        Raises:
            ArchiveFault: it is no gzip, or a bomb.
        """
        while True:
            if not self._rest:
                self._rest = self._source.read(_CHUNK)
                self._taken += len(self._rest)
                if not self._rest:
                    return b""
            if self._inflate.eof:
                self._inflate = zlib.decompressobj(wbits=31)
            try:
                data = self._inflate.decompress(self._rest, count)
            except zlib.error as error:
                raise ArchiveFault("is no gzip") from error
            self._rest = self._inflate.unconsumed_tail or self._inflate.unused_data
            self._given += len(data)
            if self._given > MAX_RATIO * self._taken + SLACK_BYTES:
                raise ArchiveFault(f"grows to more than {MAX_RATIO} times its size: it is a decompression bomb")
            if data:
                return data


class TarReader:
    """Gives members in order; what is not read of one is skipped."""

    def __init__(self, stream: Stream) -> None:
        self._stream = stream
        self._left = self._padding = 0

    def next(self) -> Member | None:
        """Give the next member; none at the end.

        Raises:
            ArchiveFault: there is none where one is due.
        """
        names: dict[str, str] = {}
        while True:
            self._skip(self._left + self._padding)
            self._left = self._padding = 0
            head = self._take(BLOCK, optional=True)
            if not head or not head.strip(b"\0"):
                return None
            _check_sum(head)
            flag, size = head[156:157], _number(head[124:136])
            if flag in {b"x", b"g", b"L", b"K"}:
                self._extend(flag, size, names)
                continue
            return self._open(head, flag, size, names)

    def _extend(self, flag: bytes, size: int, names: dict[str, str]) -> None:
        if size > MAX_EXTENDED_BYTES:
            raise ArchiveFault(f"has an extended header of {size} bytes")
        data = self._take(size)
        self._skip(-size % BLOCK)
        if flag == b"L":
            names["path"] = _text(data.rstrip(b"\0"))
        elif flag == b"x":
            names.update(_parse_records(data))

    def _open(self, head: bytes, flag: bytes, size: int, names: dict[str, str]) -> Member:
        if any(key.startswith("GNU.sparse") for key in names) or flag not in _KINDS:
            raise ArchiveFault(f"has a member of the unknown type {flag!r}")
        kind = _KINDS[flag]
        if names.get("size", "").isdecimal():
            size = int(names["size"])
        size = size if kind is Kind.FILE else 0
        self._left, self._padding = size, -size % BLOCK
        name = names.get("path") or _name(head)
        return Member(name, size, Kind.FOLDER if kind is Kind.FILE and name.endswith("/") else kind)

    def read(self, count: int) -> bytes:
        """Give up to ``count`` bytes of the present member; none at its end.

        Raises:
            ArchiveCut: the stream ends before it.
        """
        data = self._stream.read(min(count, self._left)) if self._left else b""
        if self._left and not data:
            raise ArchiveCut("ends inside a member")
        self._left -= len(data)
        return data

    def _take(self, count: int, *, optional: bool = False) -> bytes:
        parts, left = [], count
        while left:
            data = self._stream.read(left)
            if not data:
                if optional and left == count:
                    return b""
                raise ArchiveCut("ends inside a header")
            parts.append(data)
            left -= len(data)
        return b"".join(parts)

    def _skip(self, count: int) -> None:
        while count:
            data = self._stream.read(min(count, _CHUNK))
            if not data:
                raise ArchiveCut("ends inside a member")
            count -= len(data)


def _check_sum(head: bytes) -> None:
    plain = sum(head[:148]) + sum(head[156:]) + 8 * ord(" ")
    if _number(head[148:156]) != plain:
        raise ArchiveFault("is no tar archive")


def _number(text: bytes) -> int:
    if text[0] == 0x80:
        return int.from_bytes(text[1:], "big")
    digits = text.strip(b" \0")
    try:
        value = int(digits or b"0", 8)
    except ValueError:
        value = -1
    if value < 0:
        raise ArchiveFault("has a header whose numbers cannot be read")
    return value


def _name(head: bytes) -> str:
    name = head[:100].split(b"\0", 1)[0]
    prefix = head[345:500].split(b"\0", 1)[0] if head[257:263] == b"ustar\0" else b""
    return _text(prefix + b"/" + name if prefix else name)


def _text(data: bytes) -> str:
    return data.decode("utf-8", "surrogateescape")


def _parse_records(data: bytes) -> dict[str, str]:
    found = {}
    while data:
        length, _, _ = data.partition(b" ")
        if not length.isdigit() or len(length) > 7 or not len(length) + 2 < int(length) <= len(data):
            raise ArchiveFault("has an extended header that cannot be read")
        key, _, value = data[len(length) + 1 : int(length) - 1].partition(b"=")
        found[_text(key)] = _text(value)
        data = data[int(length) :]
    return found
