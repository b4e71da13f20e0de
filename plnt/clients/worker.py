"""Runs Temporal workers until SIGTERM or SIGINT, or until one of them fails."""

import asyncio
from collections.abc import Iterable

from temporalio.worker import Worker


async def run_workers(workers: Iterable[Worker], stop: asyncio.Event) -> None:
    """Run ``workers`` until ``stop`` is set, then let each end its work within its grace.

    Raises:
        Exception: what a worker failed with; the process should end and be restarted.
    """
    started = list(workers)
    running = [asyncio.create_task(worker.run()) for worker in started]
    stopping = asyncio.create_task(stop.wait())
    try:
        await asyncio.wait([stopping, *running], return_when=asyncio.FIRST_COMPLETED)
    finally:
        stopping.cancel()
        await asyncio.gather(*(worker.shutdown() for worker in started))
    await asyncio.gather(*running)
