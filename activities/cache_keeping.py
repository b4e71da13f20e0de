"""The janitor's step on the weights cache, and the leases that keep it from what rollouts count on."""

import asyncio
import logging
import threading
from datetime import UTC, datetime

from temporalio import activity

from activities.open_runs import find_closed
from activities.progress import heartbeat
from plnt.clients.weights.cache import Cache
from plnt.clients.weights.collect import Collector, Rules
from plnt.clients.weights.leases import Lease, Leases
from plnt.clients.weights.pull import in_thread
from plnt.model.housekeeping import GRACE_SECONDS, CollectCache, Collected

logger = logging.getLogger(__name__)


async def take_lease(cache: Cache, plan: str, tree: str = "") -> None:
    """Note that this workflow counts on a plan, and on its tree once it is there."""
    workflow_id = activity.info().workflow_id
    if workflow_id:
        await in_thread(Leases(cache.root).take, Lease(workflow_id=workflow_id, plan=plan, tree=tree))


async def collect_cache(cache: Cache, request: CollectCache, rules: Rules) -> Collected:
    """Collect what neither live releases nor open runs need."""
    stop = threading.Event()
    async with heartbeat():
        held = await _read_leases(Leases(cache.root))
        collector = Collector(cache, is_stopped=stop.is_set)
        live = {*request.live, *(lease.tree for lease in held if lease.tree)}
        await in_thread(collector.note_live, live)
        working = asyncio.create_task(in_thread(collector.collect, live, {lease.plan for lease in held}, rules))
        try:
            done = await asyncio.shield(working)
        except asyncio.CancelledError:
            stop.set()
            await asyncio.wait([working])
            raise
    logger.info("cache collected", extra=done.model_dump())
    return done


async def _read_leases(leases: Leases) -> list[Lease]:
    """Give the leases that count: of open runs, and for the grace time of what closed."""
    kept, now = [], datetime.now(UTC)
    for lease, written in await in_thread(leases.list):
        closed = await find_closed(lease.workflow_id)
        silent = now.timestamp() - max(written, 0.0 if closed is None else closed.timestamp())
        if closed is None or silent < GRACE_SECONDS:
            kept.append(lease)
        else:
            await in_thread(leases.drop, lease)
    return kept
