"""The journal beside a partial download: which byte ranges are there, so that any worker can go on.

One record a line: CRC-32 in hex, a blank, JSON. A line that a crash cut off, or that two writers mixed, fails its
CRC and is skipped; the bytes that it spoke of are fetched again. A record counts

* if this machine has not been restarted since (``boot``): then the page cache still holds what was written, or
* if it was written after an fdatasync of the data (``disk``): then the volume holds it.
"""

import json
import os
import threading
import zlib
from pathlib import Path
from typing import Any

from plnt.clients.weights.ranges import Ranges

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


def read_boot_id() -> str:
    """Give the running kernel's own id; where there is none, only records of synced data count."""
    try:
        return _BOOT_ID.read_text().strip()
    except OSError:
        return ""


class Journal:
    """Appends records; safe to use from several threads."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._boot = read_boot_id()
        self._lock = threading.Lock()
        self._fd = -1
        self._retired = False

    def read(self) -> Ranges:
        """Give the ranges that can be trusted."""
        found = Ranges()
        try:
            lines = self.path.read_bytes().split(b"\n")
        except FileNotFoundError:
            return found
        for line in lines:
            record = _parse(line)
            if "disk" in record:
                for first, end in record["disk"]:
                    found.add(first, end)
            elif self._boot and record.get("boot") == self._boot:
                found.add(*record["have"])
        return found

    def note(self, first: int, end: int) -> None:
        """Record that the bytes from ``first`` to before ``end`` were written."""
        self._append({"have": [first, end], "boot": self._boot})

    def note_synced(self, ranges: Ranges) -> None:
        """Record that the volume holds ``ranges``."""
        self._append({"disk": list(ranges)}, sync=True)

    def _append(self, record: dict[str, Any], *, sync: bool = False) -> None:
        text = json.dumps(record, separators=(",", ":")).encode()
        # A line of its own first: what a crash cut off before must not swallow this record.
        line = b"\n%08x %s\n" % (zlib.crc32(text), text)
        with self._lock:
            if self._retired:
                return
            if self._fd < 0:
                self._fd = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
            os.write(self._fd, line)
            if sync:
                os.fdatasync(self._fd)

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            if self._fd >= 0:
                os.close(self._fd)
                self._fd = -1

    def retire(self) -> None:
        """Forget everything; what a thread still says is not recorded."""
        with self._lock:
            self._retired = True
        self.remove()

    def remove(self) -> None:
        """Forget everything."""
        self.close()
        self.path.unlink(missing_ok=True)


def _parse(line: bytes) -> dict[str, Any]:
    crc, _, text = line.partition(b" ")
    try:
        if int(crc, 16) != zlib.crc32(text):
            return {}
        record = json.loads(text)
    except ValueError:
        return {}
    return record if isinstance(record, dict) else {}
