"""A file that is being downloaded: its data, and the journal of what is there.

Data is written in place by offset, never truncated and never appended: an overtaken attempt that still writes
puts the same bytes to the same place, because both are pinned to one validator.
"""

import ctypes
import errno
import os
import threading
from pathlib import Path

from plnt.clients.weights.journal import Journal
from plnt.clients.weights.ranges import Range, Ranges
from plnt.errors import InsufficientDisk, PlntError, SourceUnavailable

SYNC_BYTES = 256 << 20
"""Bytes between two fdatasyncs: what a power failure can cost of one file."""
WRITEBACK_BYTES = 8 << 20
"""Bytes between two starts of write-back of one file."""
_SYNC_FILE_RANGE_WRITE = 2

# Starts write-back early: 1.5 GB/s against 1.1 GB/s with one fsync at the end (ext4 on a virtual disk).
_start_writeback = getattr(ctypes.CDLL(None, use_errno=True), "sync_file_range", None)


def explain_disk_error(error: OSError, path: Path) -> PlntError:
    """Give the error for a cache volume that refused a write."""
    if error.errno in {errno.ENOSPC, errno.EDQUOT}:
        return InsufficientDisk(
            f"the cache volume at {path} is full: remove trees that nothing serves, or enlarge it; what is verified "
            f"stays and is not fetched again"
        )
    return SourceUnavailable(f"the cache volume at {path} failed: {error.strerror}: check its mount")


class Partial:
    """The data file and its journal; safe to use from several threads."""

    def __init__(self, folder: Path, key: str, size: int) -> None:
        self.path = folder / f"{key}.data"
        self.size = size
        self._journal = Journal(folder / f"{key}.journal")
        if not self.path.exists() or self.path.stat().st_size != size:
            self._journal.remove()
        self.fd = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        os.ftruncate(self.fd, size)
        self._lock = threading.Lock()
        self._ranges = self._journal.read()
        self._unsynced = self._unwritten = 0

    @property
    def present(self) -> int:
        """Bytes that are there."""
        with self._lock:
            return self._ranges.total

    def reach(self, position: int) -> int:
        """Give how far the bytes from ``position`` on are there without a gap."""
        with self._lock:
            return self._ranges.reach(position)

    def gaps(self) -> list[Range]:
        """Give what is missing."""
        with self._lock:
            return self._ranges.gaps(self.size)

    def write(self, data: memoryview, offset: int) -> None:
        """Write ``data`` at ``offset``.

        Raises:
            InsufficientDisk, SourceUnavailable: the volume is full or failed.
        """
        while data:
            try:
                written = os.pwrite(self.fd, data, offset)
            except OSError as error:
                raise explain_disk_error(error, self.path.parent) from error
            data, offset = data[written:], offset + written

    def note(self, first: int, end: int) -> None:
        """Record what was written, so that it is never fetched again."""
        if first >= end:
            return
        self._journal.note(first, end)
        with self._lock:
            self._ranges.add(first, end)
            self._unsynced += end - first
            self._unwritten += end - first

    def write_back(self) -> None:
        """Bring what was written to the volume, some at a time; for one thread, which waits for it in place of others.

        Raises:
            OSError: the volume is full or failed.
        """
        starts, synced = self._count_due()
        if starts and _start_writeback is not None:
            whole = ctypes.c_int64(0)
            _start_writeback(self.fd, whole, whole, ctypes.c_uint(_SYNC_FILE_RANGE_WRITE))
        if synced is not None:
            os.fdatasync(self.fd)
            self._journal.note_synced(synced)

    def _count_due(self) -> tuple[bool, Ranges | None]:
        with self._lock:
            starts = self._unwritten >= WRITEBACK_BYTES
            if starts:
                self._unwritten = 0
            # A file that is whole is synced when it is kept.
            if self._unsynced < SYNC_BYTES or self._ranges.total == self.size:
                return starts, None
            self._unsynced = 0
            return starts, Ranges(self._ranges)

    def close(self) -> None:
        """Close both files and keep them."""
        self._journal.close()
        os.close(self.fd)

    def forget(self) -> None:
        """Remove both names; the data lives on under another name if it was linked there."""
        self.path.unlink(missing_ok=True)
        self._journal.retire()
