"""Waiting for a condition, with a deadline."""

import asyncio
from collections.abc import Callable

DEADLINE_SECONDS = 60.0
"""Far longer than anything takes: only what never comes is to fail a test."""


async def eventually(holds: Callable[[], object], seconds: float = DEADLINE_SECONDS) -> None:
    """Return once ``holds`` gives something true; fail at the deadline."""
    async with asyncio.timeout(seconds):
        while not holds():  # noqa: ASYNC110 - what is waited for has no event of its own
            await asyncio.sleep(0.01)
