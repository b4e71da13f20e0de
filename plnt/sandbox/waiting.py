"""Waits for a condition in another process, which can only be asked again and again."""

import asyncio
from collections.abc import Awaitable, Callable

POLL_SECONDS = 0.1


async def wait_until(holds: Callable[[], Awaitable[bool]], deadline_seconds: float | None = None) -> None:
    """Ask every tenth of a second until the answer is yes.

    Raises:
        TimeoutError: the deadline passed.
    """
    async with asyncio.timeout(deadline_seconds):
        while not await holds():  # noqa: ASYNC110 - no event of this process tells
            await asyncio.sleep(POLL_SECONDS)
