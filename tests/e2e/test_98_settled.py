"""What settled early in the session is still as it was."""

import asyncio
import time

from tests.e2e.settled import Settled

QUIET_SECONDS = 60.0
"""Time in which several resyncs of 10 s pass; it has passed long ago when the whole session runs."""


async def test_settled_runs_are_left_alone_by_every_resync(settled: Settled) -> None:
    await asyncio.sleep(max(0.0, settled.since + QUIET_SECONDS - time.monotonic()))
    assert await settled.list_runs() == settled.runs
