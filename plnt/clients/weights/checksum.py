"""Sums other than SHA-256 that sources publish over whole files."""

import hashlib
from typing import Protocol

from plnt.errors import SourceUnavailable


class Checksum(Protocol):
    """A running sum."""

    def update(self, data: memoryview, /) -> object:
        """Take the next bytes."""

    def hexdigest(self) -> str:
        """Give the sum of what was taken."""


class _Crc32c:
    """CRC-32C by Google's library, which comes with gcsfs and uses the CPU's own instruction."""

    def __init__(self) -> None:
        # At use alone: a pool that never pulls from gs:// need not load it.
        import google_crc32c  # noqa: PLC0415

        self._extend = google_crc32c.extend
        self._sum = 0

    def update(self, data: memoryview, /) -> None:
        # The library takes bytes only; the copy of a mebibyte costs a tenth of hashing it.
        self._sum = self._extend(self._sum, bytes(data))

    def hexdigest(self) -> str:
        return f"{self._sum:08x}"


def start_checksum(published: str, size: int) -> Checksum | None:
    """Give the running sum to compare with ``published`` (``ALGORITHM:HEX``); none when nothing is published.

    Raises:
        SourceUnavailable: the plan is of a newer version that knows more sums.
    """
    match published.partition(":")[0]:
        case "":
            return None
        case "crc32c":
            return _Crc32c()
        case "git-sha1":
            return hashlib.sha1(b"blob %d\0" % size, usedforsecurity=False)
        case other:
            raise SourceUnavailable(f"this worker cannot compute {other}: update it")
