"""One pull of a plan, from the claim to the published tree."""

import asyncio
import logging
import ssl
from collections.abc import AsyncIterator, Callable
from concurrent.futures import Future
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import cache, partial
from typing import ParamSpec, TypeVar

from plnt.clients.weights.budget import Budget
from plnt.clients.weights.cache import Cache
from plnt.clients.weights.claim import RENEW_SECONDS, Claim
from plnt.clients.weights.credentials import Credentials
from plnt.clients.weights.host_rule import HostRule
from plnt.clients.weights.job import Job
from plnt.clients.weights.line import Reach
from plnt.clients.weights.meter import Meter
from plnt.clients.weights.mover import Mover
from plnt.clients.weights.partial import explain_disk_error
from plnt.clients.weights.source import Link, OpenSource, Source
from plnt.clients.weights.throttle import Throttle
from plnt.clients.weights.unpack import Unpacker
from plnt.errors import InsufficientDisk
from plnt.model.messages import Tree
from plnt.model.pull_plan import PlannedFile, PullPlan, TreeFile, pin_key
from plnt.model.pull_progress import PullProgress
from plnt.model.storage_uri import parse_storage_uri

logger = logging.getLogger(__name__)

STALL_SECONDS = 30.0
"""Longest time without a byte before a connection is opened again, in seconds."""
PAUSE_SECONDS = 0.5
"""Pause after a fault that brought no byte, in seconds; doubled after each further one."""
ROOM_SECONDS = 5.0
"""Time between two looks at the free space during a pull, in seconds."""
LOOK_SECONDS = 1.0
"""Time between two looks at another worker's pull, in seconds."""

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class PullSettings:
    """What all pulls of a worker share."""

    cache: Cache
    open_source: OpenSource
    throttle: Throttle
    connections: int
    private_hosts: tuple[str, ...] = ()
    stall_seconds: float = STALL_SECONDS
    pause_seconds: float = PAUSE_SECONDS
    room_seconds: float = ROOM_SECONDS
    budget: Budget | None = None
    """Connections at work in all pulls together; none = each pull has ``connections`` of its own."""


class Pull:
    """One pull. `read_progress` may be called at any time."""

    def __init__(self, settings: PullSettings, credentials: Credentials | None = None) -> None:
        self._settings = settings
        self._credentials = credentials
        self._cache = settings.cache
        self._waiting = PullProgress()
        self._meter: Meter | None = None

    def read_progress(self) -> PullProgress:
        """Give how far the pull is."""
        return self._meter.read() if self._meter is not None else self._waiting

    async def run(self, plan_digest: str) -> Tree:
        """Pull the plan, or wait for the worker that does; a tree that is there already is the answer at once.

        Cancelled, it stops within two seconds and leaves what is verified for the next one.

        Raises:
            PlntError: why it cannot be done.
        """
        try:
            plan = await in_thread(self._cache.read_plan, plan_digest)
            claim = Claim(self._cache.claim_path(plan_digest), self._cache.tmp)
            while (tree := await in_thread(self._cache.find_tree, plan_digest)) is None:
                async with self._holding(claim) as held:
                    if held:
                        return await self._pull(plan, plan_digest)
                await asyncio.sleep(LOOK_SECONDS)
        except OSError as error:
            raise explain_disk_error(error, self._cache.root) from error
        else:
            return tree

    @asynccontextmanager
    async def _holding(self, claim: Claim) -> AsyncIterator[bool]:
        held = await in_thread(claim.try_take)
        if not held:
            self._waiting = await in_thread(claim.read_progress)
            yield False
            return
        renewing = asyncio.create_task(self._renew(claim))
        try:
            yield True
        finally:
            renewing.cancel()
            await in_thread(claim.release)

    async def _renew(self, claim: Claim) -> None:
        while True:
            await asyncio.sleep(RENEW_SECONDS)
            try:
                await in_thread(claim.renew, self.read_progress())
            except OSError as error:
                # The pull goes on: a claim that is lost costs bytes, not correctness.
                logger.warning("claim not renewed", extra={"error": str(error)})

    async def _pull(self, plan: PullPlan, plan_digest: str) -> Tree:
        # Another holder may have published between the look and the claim.
        if (tree := await in_thread(self._cache.find_tree, plan_digest)) is not None:
            return tree
        self._meter = meter = Meter(plan.bytes, len(plan.files))
        there, missing = await in_thread(self._sort, plan, meter)
        moved = await self._move(plan, missing, meter) if missing else []
        return await self._publish(plan, plan_digest, [*there, *moved])

    async def _publish(self, plan: PullPlan, plan_digest: str, files: list[TreeFile]) -> Tree:
        archives = {file.path for file in plan.files if file.unpack}
        if not archives:
            return await in_thread(self._cache.publish_tree, files, plan_digest, plan.proof)
        unpacker = Unpacker(self._cache, plan)
        plain = [file for file in files if file.path not in archives]
        unpacking = asyncio.create_task(asyncio.to_thread(unpacker.run, plain))
        try:
            taken = await asyncio.shield(unpacking)
        except asyncio.CancelledError:
            unpacker.stop.set()
            await asyncio.wait([unpacking])
            raise
        tree = await in_thread(self._cache.publish_tree, taken, plan_digest, plan.proof)
        await in_thread(unpacker.forget_archives)
        return tree

    def _sort(self, plan: PullPlan, meter: Meter) -> tuple[list[TreeFile], list[PlannedFile]]:
        there, missing = [], []
        for file in plan.files:
            sha256 = self._cache.find_blob(pin_key(plan, file), file.size, file.sha256)
            if sha256:
                there.append(TreeFile(path=file.path, size=file.size, sha256=sha256))
                meter.add_reused(file.size)
                meter.add_file()
            else:
                missing.append(file)
        return there, missing

    async def _move(self, plan: PullPlan, missing: list[PlannedFile], meter: Meter) -> list[TreeFile]:
        loop = asyncio.get_running_loop()
        async with self._settings.open_source(parse_storage_uri(plan.source), self._credentials) as source:

            def make_link(file: PlannedFile) -> Future[Link]:
                return asyncio.run_coroutine_threadsafe(source.make_link(file), loop)

            jobs = await in_thread(self._open_jobs, plan, missing, make_link)
            for job in jobs:
                meter.add_reused(job.partial.present)
            mover = self._make_mover(plan, source, meter)
            moving = asyncio.create_task(asyncio.to_thread(mover.run, jobs))
            watching = asyncio.create_task(self._watch_room(mover, meter))
            try:
                return await asyncio.shield(moving)
            except InsufficientDisk as error:
                left = meter.read()
                full = self._cache.explain_full
                raise await in_thread(full, left.bytes_total - left.bytes_done, plan.bytes) from error
            except asyncio.CancelledError:
                mover.stop()
                await asyncio.wait([moving])
                raise
            finally:
                watching.cancel()

    async def _watch_room(self, mover: Mover, meter: Meter) -> None:
        """End the move when others took the room that it still needs, rather than at the last byte."""
        while True:
            await asyncio.sleep(self._settings.room_seconds)
            left = await in_thread(self._cache.measure_left)
            progress = meter.read()
            missing = progress.bytes_total - progress.bytes_done
            if missing > left:
                mover.fail(await in_thread(self._cache.explain_full, missing, progress.bytes_total))

    def _make_mover(self, plan: PullPlan, source: Source, meter: Meter) -> Mover:
        settings = self._settings
        rule = HostRule({*source.trusted_hosts, *settings.private_hosts})
        make_tls = cache(partial(ssl.create_default_context, cafile=source.ca_bundle))
        reach = Reach(rule, make_tls, settings.stall_seconds, settings.pause_seconds, settings.throttle.receive_bytes)
        budget = settings.budget or Budget(settings.connections)
        return Mover(plan, self._cache, meter, reach, settings.throttle, settings.connections, budget)

    def _open_jobs(
        self, plan: PullPlan, missing: list[PlannedFile], make_link: Callable[[PlannedFile], Future[Link]]
    ) -> list[Job]:
        jobs = [Job(file, self._cache.open_partial(pin_key(plan, file), file.size), make_link) for file in missing]
        try:
            needed = sum(job.file.size - job.partial.present for job in jobs)
            self._cache.check_room(needed, plan.bytes)
        except BaseException:
            for job in jobs:
                job.partial.close()
            raise
        return jobs


async def in_thread(call: Callable[Arguments, Result], /, *args: Arguments.args, **kwargs: Arguments.kwargs) -> Result:
    """Run a blocking call in a thread; a cancel is delivered only after the call has ended."""
    task = asyncio.create_task(asyncio.to_thread(call, *args, **kwargs))
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait([task])
        raise
