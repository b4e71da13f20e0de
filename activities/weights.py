"""The weights pool: pins a source to a plan, then pulls the plan into the cache."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

from activities.cache_keeping import collect_cache, take_lease
from activities.progress import heartbeat, report_progress
from plnt.clients.kube import connect
from plnt.clients.weights.budget import Budget
from plnt.clients.weights.cache import Cache
from plnt.clients.weights.collect import Rules
from plnt.clients.weights.credentials import Credentials, read_credentials
from plnt.clients.weights.pull import Pull, PullSettings, in_thread
from plnt.clients.weights.resolve import resolve
from plnt.clients.weights.sources import Sources
from plnt.clients.weights.throttle import Throttle
from plnt.model.desired import Ref
from plnt.model.file_choice import Globs
from plnt.model.housekeeping import CollectCache, Collected
from plnt.model.messages import PlanRef, PullWeights, ResolveSource, Tree
from plnt.model.pull_progress import describe_progress
from plnt.model.storage_uri import parse_storage_uri
from plnt.settings import PoolSettings
from plnt.steps import COLLECT_CACHE, PULL_WEIGHTS, RESOLVE_SOURCE, implements

REPORT_SECONDS = 2.0
"""Time between two words of progress in the status."""


class WeightsActivities:
    """Activities of the weights pool."""

    def __init__(self, settings: PullSettings, rules: Rules) -> None:
        self._settings = settings
        self._rules = rules

    @implements(RESOLVE_SOURCE)
    async def resolve_source(self, request: ResolveSource) -> PlanRef:
        """List the source, choose and pin its files, check the checkpoint, write the plan to the cache."""
        uri = parse_storage_uri(request.storage_uri)
        credentials = await _find_credentials(request.ref, request.credentials)
        globs = Globs(include=request.include, exclude=request.exclude)
        async with self._settings.open_source(uri, credentials) as source:
            found = await resolve(source, request.runtime, request.quantization, globs)
        digest = await in_thread(self._settings.cache.write_plan, found.plan)
        await take_lease(self._settings.cache, digest)
        return PlanRef(
            digest=digest,
            files=len(found.plan.files),
            bytes=found.plan.bytes,
            weight_bytes=found.weight_bytes,
            online_quantization=found.online_quantization,
            shape=found.shape,
        )

    @implements(PULL_WEIGHTS)
    async def pull_weights(self, request: PullWeights) -> Tree:
        """Pull the plan; any worker goes on where another one was stopped or killed."""
        pull = Pull(self._settings, await _find_credentials(request.ref, request.credentials))
        await take_lease(self._settings.cache, request.plan.digest)
        async with heartbeat(pull.read_progress), _reporting(pull):
            tree = await pull.run(request.plan.digest)
        await take_lease(self._settings.cache, request.plan.digest, tree.digest)
        return tree.model_copy(update={"online_quantization": request.plan.online_quantization})

    @implements(COLLECT_CACHE)
    async def collect_cache(self, request: CollectCache) -> Collected:
        """Collect what nothing needs of the cache."""
        return await collect_cache(self._settings.cache, request, self._rules)


async def _find_credentials(ref: Ref, secret: str) -> Credentials | None:
    """Read the named Secret anew: it may have been rotated, and is kept nowhere."""
    if not secret:
        return None
    async with connect() as kube:
        return await read_credentials(kube, ref.namespace, secret)


@asynccontextmanager
async def _reporting(pull: Pull) -> AsyncIterator[None]:
    task = asyncio.create_task(_report(pull))
    try:
        yield
    finally:
        task.cancel()


async def _report(pull: Pull) -> None:
    said = ""
    while True:
        progress = pull.read_progress()
        words = describe_progress(progress) if progress.bytes_total else ""
        if words != said:
            said = words
            await report_progress(words)
        await asyncio.sleep(REPORT_SECONDS)


@asynccontextmanager
async def open_pool(settings: PoolSettings) -> AsyncIterator[Sequence[Callable[..., Any]]]:
    """Open the cache and give the pool's activities."""
    cache = Cache(settings.cache_dir, settings.cache_max_bytes)
    await in_thread(cache.prepare)
    shared = PullSettings(
        cache=cache,
        open_source=Sources(settings).open,
        throttle=Throttle(settings.pull_bytes_per_second),
        connections=settings.pull_connections,
        budget=Budget(settings.pull_connections),
        private_hosts=settings.private_hosts,
    )
    rules = Rules(settings.cache_keep_seconds, settings.cache_high_water_percent)
    activities = WeightsActivities(shared, rules)
    yield [activities.resolve_source, activities.pull_weights, activities.collect_cache]
