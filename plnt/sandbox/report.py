"""What the commands show while they work."""

import shutil
import time
from collections.abc import Callable, Sequence
from typing import Self, TextIO

from plnt.sandbox.record import LAUNCHER, Entry

_QUIET_SECONDS = 30.0
"""On a stream that is no terminal a tick is shown this often."""


class Reporter:
    """Writes lines that stay, and ticks that a terminal overwrites."""

    def __init__(self, stream: TextIO, clock: Callable[[], float] = time.monotonic) -> None:
        """Write to ``stream``."""
        self._stream = stream
        self._clock = clock
        self._live = stream.isatty()
        self._open = False
        self._last_tick = clock()

    def say(self, text: str) -> None:
        """Write a line."""
        self._end_tick()
        print(text, file=self._stream, flush=True)
        self._last_tick = self._clock()

    def tick(self, text: str) -> None:
        """Show ``text`` until the next line or tick; rarely where lines cannot be overwritten."""
        if self._live:
            width = shutil.get_terminal_size().columns - 1
            self._stream.write(f"\r\x1b[K{text[:width]}")
            self._stream.flush()
            self._open = True
        elif self._clock() - self._last_tick >= _QUIET_SECONDS:
            self.say(text)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._open:
            print(file=self._stream)
            self._open = False

    def _end_tick(self) -> None:
        if self._open:
            self._stream.write("\r\x1b[K")
            self._open = False


def render_status(entries: Sequence[Entry]) -> tuple[list[str], bool]:
    """Give the table of components, and whether all run."""
    rows = [("COMPONENT", "STATE", "PID", "PORTS", "UPTIME", "RESTARTS", "NOTE")]
    well, now = True, time.clock_gettime(time.CLOCK_BOOTTIME)
    for entry in entries:
        runs = entry.find() is not None
        well = well and runs
        rows.append(
            (
                entry.name,
                "running" if runs else "down",
                str(entry.pid) if runs else "-",
                ",".join(map(str, entry.ports)) or "-",
                render_seconds(now - entry.started) if runs else "-",
                str(entry.restarts) if entry.name != LAUNCHER else "-",
                "" if runs else entry.note,
            )
        )
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    return lines, well


def render_seconds(seconds: float) -> str:
    """Give a duration as kubectl's AGE column does."""
    whole = max(int(seconds), 0)
    if whole < 120:
        return f"{whole}s"
    return f"{whole // 60}m{whole % 60}s" if whole < 3600 else f"{whole // 3600}h{whole % 3600 // 60}m"
