"""Counts what a pull moves; read from the event loop while threads write."""

import threading
import time

from plnt.model.pull_progress import PullProgress

_RATE_SECONDS = 10.0
"""Time over which the shown rate is averaged."""


class Meter:
    """Bytes, files and retries of one pull, and the rate of the last ten seconds."""

    def __init__(self, bytes_total: int, files_total: int) -> None:
        self._total, self._files = bytes_total, files_total
        self._lock = threading.Lock()
        self._moved = self._reused = self._files_done = self._retries = 0
        self._started = self._seen_at = time.monotonic()
        self._seen = 0
        self._rate = 0.0

    def add_moved(self, count: int) -> None:
        """Count bytes that came from the source; negative when they are thrown away."""
        with self._lock:
            self._moved += count

    @property
    def moved(self) -> int:
        """Bytes that came from the source."""
        return self._moved

    def add_reused(self, count: int) -> None:
        """Count bytes that were in the cache already."""
        with self._lock:
            self._reused += count

    def add_file(self) -> None:
        """Count a complete file."""
        with self._lock:
            self._files_done += 1

    def add_retry(self) -> None:
        """Count a request that is made again."""
        with self._lock:
            self._retries += 1

    def read(self) -> PullProgress:
        """Give the state of the moment."""
        with self._lock:
            self._update_rate()
            done = min(self._reused + self._moved, self._total)
            eta = round((self._total - done) / self._rate) if self._rate > 1 else None
            return PullProgress(
                bytes_done=done,
                bytes_total=self._total,
                bytes_reused=self._reused,
                bytes_per_second=round(self._rate),
                eta_seconds=eta,
                files_done=self._files_done,
                files_total=self._files,
                retries=self._retries,
            )

    def _update_rate(self) -> None:
        now = time.monotonic()
        elapsed = now - self._seen_at
        if elapsed < 0.2:
            return
        weight = min(1.0, elapsed / min(_RATE_SECONDS, max(now - self._started, elapsed)))
        self._rate += weight * ((self._moved - self._seen) / elapsed - self._rate)
        self._seen, self._seen_at = self._moved, now
