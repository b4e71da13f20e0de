"""How late this process's own event loop is: a measurement taken on a late loop is late itself."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from time import perf_counter

TICK_SECONDS = 0.01
"""Time between two looks: a stall shorter than this may go unseen."""


class LoopLag:
    """The worst lag since the last `restart`."""

    def __init__(self) -> None:
        self._due = perf_counter()
        self._worst = 0.0

    @property
    def worst_ms(self) -> float:
        """Worst lag in milliseconds, a stall that still lasts included."""
        return max(self._worst, perf_counter() - self._due) * 1000

    def restart(self) -> None:
        """Forget what was seen."""
        self._worst = 0.0

    async def watch(self) -> None:
        """Look at the loop until cancelled."""
        while True:
            self._due = perf_counter() + TICK_SECONDS
            await asyncio.sleep(TICK_SECONDS)
            self._worst = max(self._worst, perf_counter() - self._due)


@asynccontextmanager
async def watch_loop() -> AsyncIterator[LoopLag]:
    """Watch the running loop while the context is open."""
    lag = LoopLag()
    task = asyncio.create_task(lag.watch())
    try:
        yield lag
    finally:
        task.cancel()
