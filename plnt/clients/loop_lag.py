"""How late this process's own event loop is: a clock read on a late loop is read late."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from time import perf_counter

TICK_SECONDS = 0.01
"""Time between two looks: a stall shorter than this may go unseen."""


class LoopLag:
    """The stalls of a loop since the last `restart`, as spans of perf_counter: due to run, and run at last."""

    def __init__(self) -> None:
        self._due = perf_counter()
        self._stalls: list[tuple[float, float]] = []

    def restart(self) -> None:
        """Forget the stalls that are over."""
        self._stalls.clear()

    def tell_lateness_ms(self, at: float) -> float:
        """Give how late the clock reading ``at`` may have been, in milliseconds; less than a tick counts as none.

        A reader that a stall held up runs with the first turns of the loop after it, hence the tick of margin.
        """
        spans = [*self._stalls, (self._due, perf_counter())]
        late = [min(at, end) - due for due, end in spans if due <= at <= end + TICK_SECONDS]
        return 1000 * max((seconds for seconds in late if seconds >= TICK_SECONDS), default=0.0)

    async def watch(self) -> None:
        """Look at the loop until cancelled."""
        while True:
            self._due = perf_counter() + TICK_SECONDS
            await asyncio.sleep(TICK_SECONDS)
            now = perf_counter()
            if now - self._due >= TICK_SECONDS:
                self._stalls.append((self._due, now))


@asynccontextmanager
async def watch_loop() -> AsyncIterator[LoopLag]:
    """Watch the running loop while the context is open."""
    lag = LoopLag()
    task = asyncio.create_task(lag.watch())
    try:
        yield lag
    finally:
        task.cancel()
