"""A bound on connections at work, shared by every pull of a worker process."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

_LOOK_SECONDS = 0.2


class Budget:
    """Each part is fetched under a permit, so that pulls side by side share fairly, a part at a time."""

    def __init__(self, connections: int) -> None:
        self._free = threading.Semaphore(connections)

    @contextmanager
    def hold(self, stop: threading.Event) -> Iterator[bool]:
        """Wait for a permit; false when ``stop`` was set first."""
        while not stop.is_set():
            if self._free.acquire(timeout=_LOOK_SECONDS):
                try:
                    yield True
                finally:
                    self._free.release()
                return
        yield False
