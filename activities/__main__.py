"""``python -m activities POOL [POOL ...]``: serve the activities of the named pools."""

import argparse
import asyncio
import os
import sys
from collections.abc import Sequence
from contextlib import AsyncExitStack
from datetime import timedelta

from temporalio.worker import Worker

from activities.boundary import Boundary
from activities.pools import POOLS, Pool
from plnt import telemetry
from plnt.clients import temporal
from plnt.clients.health import serve_health
from plnt.clients.stopping import stop_event
from plnt.clients.worker import run_workers
from plnt.settings import PoolSettings, SettingsInvalid

HEARTBEAT_THROTTLE = timedelta(seconds=1)
"""Longest time a heartbeat is held back: it bounds how late a cancel is noticed."""


async def serve(pools: Sequence[Pool], settings: PoolSettings) -> None:
    """Serve ``pools`` until the process is told to stop."""
    workers: list[Worker] = []
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(
            serve_health(settings.listen_host, settings.health_port, alive=lambda: "", ready=lambda: _polling(workers))
        )
        client = await temporal.connect(telemetry.start_runtime(settings), telemetry.start_tracing())
        stop = stop_event()
        workers += [
            Worker(
                client,
                task_queue=pool.queue,
                activities=list(await stack.enter_async_context(pool.open(settings))),
                interceptors=[Boundary()],
                max_concurrent_activities=settings.slots or pool.slots,
                graceful_shutdown_timeout=pool.grace,
                max_heartbeat_throttle_interval=HEARTBEAT_THROTTLE,
                default_heartbeat_throttle_interval=HEARTBEAT_THROTTLE,
            )
            for pool in pools
        ]
        await run_workers(workers, stop)


def _polling(workers: Sequence[Worker]) -> str:
    if not workers:
        return "Temporal was not reached yet"
    return "" if all(worker.is_running for worker in workers) else "a worker does not poll yet"


def main() -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(prog="python -m activities", description=__doc__)
    parser.add_argument("pool", nargs="+", choices=sorted(POOLS))
    names = parser.parse_args().pool
    try:
        settings = PoolSettings.read(os.environ)
        telemetry.start_logging(settings)
        asyncio.run(serve([POOLS[name] for name in dict.fromkeys(names)], settings))
    except SettingsInvalid as error:
        print(f"wrong settings:\n{error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    telemetry.end_process(main())
