"""Finds workflows whose WorkflowRun is gone without anybody having said so: a deletion while no bridge watched."""

import asyncio
import logging
from collections.abc import Sequence
from typing import NoReturn, Protocol

from temporalio.service import RPCError

from bridge.runs import Runs
from plnt.model.poke import Key

logger = logging.getLogger(__name__)

RETRY_SECONDS = 1.0


class Known(Protocol):
    """What knows the WorkflowRuns that exist."""

    def check_ready(self) -> str:
        """Give why they are not known at the moment, else an empty string."""

    def misses(self, key: Key) -> bool:
        """Say whether a WorkflowRun would be known here and is not."""


class Sweep:
    """Tells reporters and rollouts to look; each reads the API server itself, so a wrong word does no harm."""

    def __init__(self, runs: Runs, known: Sequence[Known], seconds: float) -> None:
        """Look every ``seconds`` seconds, the first time as soon as all of ``known`` are ready."""
        self._runs = runs
        self._known = known
        self._seconds = seconds

    async def run(self) -> NoReturn:
        """Sweep for ever."""
        while True:
            done = not any(one.check_ready() for one in self._known) and await self._try()
            await asyncio.sleep(self._seconds if done else RETRY_SECONDS)

    async def _try(self) -> bool:
        try:
            for key in await self._runs.list_open():
                if any(one.misses(key) for one in self._known):
                    logger.info("its object is gone", extra={"run": "/".join(key)})
                    await self._runs.tell_gone(key, "")
                    await self._runs.wake(key)
        except RPCError as error:
            logger.warning("temporal unavailable", extra={"error": str(error)})
            return False
        return True
