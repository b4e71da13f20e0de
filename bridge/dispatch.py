"""Carries decisions out on Temporal, idempotently, until it answers: no event is lost to an outage."""

import asyncio
import logging
import random
from dataclasses import dataclass, field
from typing import NoReturn

from temporalio.service import RPCError

from bridge.runs import Runs
from bridge.watch import Change
from plnt.model.poke import Action, Decision, Key, LatestRun, Seen, decide, pending_report

logger = logging.getLogger(__name__)

FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 0.5, 30.0
MAX_AT_ONCE = 20
"""WorkflowRuns worked on at once: a full list of thousands must not ask Temporal for all of them in one moment."""


@dataclass(slots=True)
class _Work:
    """What is to be done for one key: only the latest object counts, but each uid that went."""

    gone: list[Change] = field(default_factory=list)
    seen: Seen | None = None
    listed: bool = False


class Dispatcher:
    """Works changes off, one at a time for each WorkflowRun, different ones side by side."""

    def __init__(self, runs: Runs) -> None:
        """Act through ``runs``."""
        self._runs = runs
        self._work: dict[Key, _Work] = {}
        self._poked: dict[Key, str] = {}
        self._keys: asyncio.Queue[Key] = asyncio.Queue()
        self._faults: dict[Key, str] = {}
        self._slots = asyncio.Semaphore(MAX_AT_ONCE)

    def offer(self, change: Change) -> None:
        """Take a change; it replaces an earlier one of the same object that was not worked off yet."""
        key = change.seen.key
        if key not in self._work:
            self._work[key] = _Work()
            self._keys.put_nowait(key)
        work = self._work[key]
        if change.gone:
            work.gone.append(change)
            if work.seen is not None and work.seen.uid == change.seen.uid:
                work.seen = None
        else:
            work.seen = change.seen
            work.listed |= change.listed

    def check_ready(self) -> str:
        """Give why changes of some WorkflowRun are not passed on at the moment, else an empty string."""
        if not self._faults:
            return ""
        key, fault = next(iter(self._faults.items()))
        return f"{fault} (WorkflowRuns that wait: {len(self._faults)}, first {'/'.join(key)})"

    async def run(self) -> NoReturn:
        """Work off for ever, one task for each key that has work."""
        async with asyncio.TaskGroup() as group:
            while True:
                key = await self._keys.get()
                group.create_task(self._work_off(key))

    async def _work_off(self, key: Key) -> None:
        """Do the key's work, what arrives meanwhile included; the key is free again when nothing is left."""
        pause = FIRST_PAUSE_SECONDS
        while (work := self._work[key]).gone or work.seen:
            try:
                async with self._slots:
                    await self._do_next(key, work)
                self._faults.pop(key, None)
                pause = FIRST_PAUSE_SECONDS
            except RPCError as error:
                self._faults[key] = f"Temporal: {error}"
                logger.warning("temporal unavailable", extra={"run": "/".join(key), "error": str(error)})
                await asyncio.sleep(pause * random.uniform(0.5, 1.0))  # noqa: S311
                pause = min(pause * 2, LONGEST_PAUSE_SECONDS)
        del self._work[key]

    async def _do_next(self, key: Key, work: _Work) -> None:
        if work.gone:
            await self._tell_gone(work.gone[0])
            del work.gone[0]
            if not work.gone and work.seen is None:
                self._poked.pop(key, None)
            return
        seen, listed = work.seen, work.listed
        if seen is None:
            return
        await self._handle(seen, listed=listed)
        if work.seen is seen:
            work.seen, work.listed = None, False

    async def _tell_gone(self, change: Change) -> None:
        """Tell the reporter, and a run that may not know that its object went without a teardown.

        Who saw it go like that starts a run, which takes down what is left. A list only shows that it is gone: it
        may have gone in order meanwhile, so there an open run is told and none is started.
        """
        seen = change.seen
        await self._runs.tell_gone(seen.key, seen.uid)
        if seen.deleting:
            return
        if change.listed:
            await self._runs.wake(seen.key)
        else:
            await self._runs.poke(seen)

    async def _handle(self, seen: Seen, *, listed: bool) -> None:
        decision, latest = await self._decide(seen, listed=listed)
        facts = {"run": "/".join(seen.key), "generation": seen.generation, "reason": decision.reason}
        logger.log(
            logging.DEBUG if decision.action is Action.IGNORE else logging.INFO, decision.action.value, extra=facts
        )
        if decision.action is Action.POKE:
            await self._runs.open_reporter(seen, pending_report(seen))
            await self._runs.poke(seen)
        elif decision.action is Action.SEND and latest is not None:
            await self._runs.open_reporter(seen, latest.report)
        self._poked[seen.key] = seen.identity

    async def _decide(self, seen: Seen, *, listed: bool) -> tuple[Decision, LatestRun | None]:
        poked = self._poked.get(seen.key) == seen.identity
        decision = decide(seen, poked=poked, listed=listed)
        if decision.action is not Action.LOOK_UP:
            return decision, None
        latest = await self._runs.describe(seen)
        return decide(seen, poked=poked, listed=listed, latest=latest), latest
