"""A bound on bytes per second, shared by every pull of a worker."""

import threading
import time

_MAX_BURST_SECONDS = 0.25
_MAX_CHUNK = 1 << 20


class Throttle:
    """A token bucket; without a rate it never waits."""

    def __init__(self, bytes_per_second: int | None) -> None:
        self.rate = bytes_per_second
        self._lock = threading.Lock()
        self._ready_at = time.monotonic()

    @property
    def chunk(self) -> int:
        """Most bytes to ask for at once so that the flow stays even."""
        return _MAX_CHUNK if self.rate is None else max(1 << 12, min(_MAX_CHUNK, self.rate // 8))

    @property
    def receive_bytes(self) -> int | None:
        """Receive buffer of a socket under the bound: the kernel's own would take megabytes ahead of the rate."""
        return None if self.rate is None else 1 << 17

    def bound_connections(self, wanted: int) -> int:
        """Give how many connections the rate is worth: more would only fill socket buffers that a crash throws away."""
        return wanted if self.rate is None else max(1, min(wanted, self.rate // (2 << 20)))

    def take(self, count: int, stop: threading.Event) -> None:
        """Wait until ``count`` bytes may pass, or ``stop`` is set."""
        if self.rate is None:
            return
        with self._lock:
            now = time.monotonic()
            self._ready_at = max(self._ready_at, now - _MAX_BURST_SECONDS) + count / self.rate
            pause = self._ready_at - now
        if pause > 0:
            stop.wait(pause)
