"""The promote pool: moves traffic between revisions, and every undo of that.

Each write is fenced and conditional: read, check that this run is still the newest, write with the resourceVersion
that was read, read back. So a paused attempt of an older run cannot undo what a newer one wrote.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from time import monotonic
from typing import Any

from temporalio import activity

from activities import autoscaler
from activities.drain import Drain
from activities.fence import check_current_run
from activities.progress import heartbeat
from plnt.clients import kube
from plnt.clients.kube import ENDPOINT_SLICES, SERVICES, VIRTUAL_SERVICES, Kube, Object
from plnt.errors import Conflict, EndpointNotReady, NameTaken, NotFound
from plnt.model import names, traffic
from plnt.model.desired import Policy, Ref
from plnt.model.messages import Done, Settle, Settled, SetWeights, Weights, WithdrawCanary
from plnt.model.traffic import Site
from plnt.settings import PoolSettings
from plnt.steps import SET_WEIGHTS, SETTLE, WITHDRAW_CANARY, implements

ENDPOINT_SECONDS = 30.0
"""Longest wait of one attempt for the front Service's endpoints."""
GONE_SECONDS = 10.0
"""Longest wait of one attempt for a deleted route to be gone."""
POLL_SECONDS = 0.5


class Promote:
    """Activities of the promote pool."""

    def __init__(self, api: Kube) -> None:
        self._kube = api

    @implements(SET_WEIGHTS)
    async def set_weights(self, request: SetWeights) -> Weights:
        """Split the traffic between the stable revision and the canary; gives the split as read back.

        The route's serving annotation changes only by ``serving``; without a note of its own it is the stable one.

        Raises:
            NameTaken: Service or route of the base name belong to somebody else.
            NotFound: the cluster has no VirtualServices.
            Conflict: another writer came between.
            StaleRun: a newer run took over.
        """
        site = _site(request.ref, request.base, request.policy)
        await self._check_front(site)
        present = await self._find_route(site)
        noted = None if present is None else traffic.read_serving(present)
        weights = traffic.choose_weights(request.stable, request.canary, request.canary_percent)
        wanted = traffic.render_route(site, weights, request.serving or noted or request.stable)
        seen = await self._write_route(site, wanted, present)
        return Weights(weights=traffic.read_weights(site.base, seen))

    @implements(WITHDRAW_CANARY)
    async def withdraw_canary(self, request: WithdrawCanary) -> Done:
        """Route everything to the stable revision, or nothing anywhere when there is none; then drain.

        Raises:
            NameTaken: a stable revision is said to serve under a name that belongs to somebody else.
            Conflict: another writer came between.
            StaleRun: a newer run took over.
        """
        site, drain = _site(request.ref, request.base, request.policy), Drain()
        async with heartbeat(drain.read):
            if request.stable is None:
                moved = await self._close(site)
            else:
                await self._check_front(site)
                moved = await self._route_alone(site, request.stable)
            if request.drain:
                drain.begin(afresh=moved)
                await drain.wait(request.policy.drain_seconds)
        return Done()

    @implements(SETTLE)
    async def settle(self, request: Settle) -> Settled:
        """Let front Service, route and autoscaler follow the serving revision alone, and write the serving record.

        Raises:
            NameTaken: Service or route of the base name belong to somebody else.
            EndpointNotReady: no pod of the release is behind the front Service yet.
            Conflict: another writer came between.
            StaleRun: a newer run took over.
        """
        site = _site(request.ref, request.base, request.policy)
        front = await self._check_front(site) or await self._claim_front(site)
        await self._write_front(site, traffic.render_front(site, request.record), front)
        await self._route_alone(site, request.record.revision)
        autoscaling = await autoscaler.settle_autoscaler(self._kube, site, request)
        if not await autoscaler.is_at_zero(self._kube, site, request.record.release):
            await self._await_endpoint(site, request.record.release)
        endpoint = names.endpoint_url(site.base, site.namespace, site.cluster_domain)
        return Settled(endpoint=endpoint, autoscaling=autoscaling)

    async def _check_front(self, site: Site) -> Object | None:
        front = await self._kube.find(SERVICES, site.namespace, site.base)
        if front is not None and traffic.read_claim(front) != site.name:
            raise NameTaken(_tell_taken("Service", site, traffic.read_claim(front)))
        return front

    async def _claim_front(self, site: Site) -> Object:
        """Claim a front Service that somebody deleted, as `survey` does: created, and selecting nothing.

        A selector that was created rather than applied would stay when an apply leaves it out.
        """
        await check_current_run()
        return await self._kube.create(SERVICES, site.namespace, traffic.render_front(site, None))

    async def _find_route(self, site: Site) -> Object | None:
        route = await self._kube.find(VIRTUAL_SERVICES, site.namespace, site.base)
        if route is not None and not traffic.is_own_route(site, route):
            raise NameTaken(_tell_taken("VirtualService", site, traffic.read_claim(route)))
        return route

    async def _route_alone(self, site: Site, revision: str) -> bool:
        """Route everything to one revision; tells whether anything went elsewhere until now."""
        weights = traffic.choose_weights(None, revision, traffic.FULL)
        wanted, present = traffic.render_route(site, weights, revision), await self._find_route(site)
        await self._write_route(site, wanted, present)
        return traffic.find_route_difference(site, wanted, present) != ""

    async def _write_route(self, site: Site, wanted: Object, present: Object | None) -> Object:
        await check_current_run()
        try:
            if present is None:
                await self._kube.create(VIRTUAL_SERVICES, site.namespace, wanted)
            else:
                await self._kube.apply(VIRTUAL_SERVICES, _pinned(wanted, present))
        except NotFound as error:
            raise await self._explain_missing(site, error) from error
        seen = await self._kube.find(VIRTUAL_SERVICES, site.namespace, site.base)
        difference = traffic.find_route_difference(site, wanted, seen)
        if seen is None or difference:
            raise Conflict(f"VirtualService {site.namespace}/{site.base} was written, but {difference}")
        return seen

    async def _explain_missing(self, site: Site, error: NotFound) -> NotFound:
        """Tell a missing kind from a missing namespace: the server answers both with 404."""
        if not await self._kube.serves(VIRTUAL_SERVICES.api):
            return NotFound(
                f"the cluster serves no VirtualService ({VIRTUAL_SERVICES.api}), which PLNT_PROVIDER=istio needs "
                f"to split traffic of {site.namespace}/{site.base}: install Istio and its CRDs"
            )
        return error

    async def _write_front(self, site: Site, wanted: Object, present: Object | None) -> None:
        await check_current_run()
        await self._kube.apply(SERVICES, _pinned(wanted, present))
        seen = await self._kube.find(SERVICES, site.namespace, site.base)
        if difference := traffic.find_front_difference(wanted, seen):
            raise Conflict(f"Service {site.namespace}/{site.base} was applied, but {difference}")

    async def _close(self, site: Site) -> bool:
        """Take autoscaler and route away and let the front Service select nothing; what others own stays as it is.

        Tells whether there was a way to a pod until now.
        """
        await autoscaler.remove_autoscaler(self._kube, site)
        front = await self._kube.find(SERVICES, site.namespace, site.base)
        route = await self._kube.find(VIRTUAL_SERVICES, site.namespace, site.base)
        if route is not None and not traffic.is_own_route(site, route):
            route = None
        if route is not None:
            await check_current_run()
            await self._kube.delete_seen(VIRTUAL_SERVICES, route)
            await self._await_gone(site, route["metadata"]["uid"])
        if front is None or traffic.read_claim(front) != site.name:
            return route is not None
        await self._write_front(site, traffic.render_front(site, None), front)
        return route is not None or traffic.read_selected_release(front) is not None

    async def _await_gone(self, site: Site, uid: str) -> None:
        deadline = monotonic() + GONE_SECONDS
        while (left := await self._kube.find(VIRTUAL_SERVICES, site.namespace, site.base)) is not None:
            if left["metadata"]["uid"] != uid:
                return
            if monotonic() >= deadline:
                held = ", ".join(left["metadata"].get("finalizers") or ["none"])
                raise Conflict(
                    f"VirtualService {site.namespace}/{site.base} was deleted but is still there; finalizers: {held}"
                )
            await asyncio.sleep(POLL_SECONDS)

    async def _await_endpoint(self, site: Site, release: str) -> None:
        deadline = monotonic() + ENDPOINT_SECONDS
        label = f"{traffic.SLICE_SERVICE_LABEL}={site.base}"
        while True:
            slices, _ = await self._kube.list(ENDPOINT_SLICES, site.namespace, labels=label)
            if traffic.has_ready_endpoint(slices, release):
                return
            if monotonic() >= deadline:
                raise EndpointNotReady(
                    f"Service {site.namespace}/{site.base} has no ready pod of release {release} "
                    f"in its EndpointSlices after {ENDPOINT_SECONDS:g} s; look at the pods of {release}"
                )
            await asyncio.sleep(POLL_SECONDS)


def _site(ref: Ref, base: str, policy: Policy) -> Site:
    return Site(
        namespace=ref.namespace,
        name=ref.name,
        base=base,
        cluster_domain=policy.cluster_domain,
        run_id=activity.info().workflow_run_id or "",
    )


def _pinned(wanted: Object, present: Object | None) -> Object:
    """Make an apply fail when the object changed since it was read."""
    if present is None:
        return wanted
    version = present["metadata"]["resourceVersion"]
    return {**wanted, "metadata": {**wanted["metadata"], "resourceVersion": version}}


def _tell_taken(kind: str, site: Site, owner: str | None) -> str:
    holder = "no WorkflowRun" if owner is None else f"WorkflowRun {owner}"
    return (
        f"{kind} {site.namespace}/{site.base} belongs to {holder}, not to {site.name}: "
        "delete it or give this WorkflowRun another name"
    )


@asynccontextmanager
async def open_pool(_: PoolSettings) -> AsyncIterator[Sequence[Callable[..., Any]]]:
    """Give the activities of the pool, which hold one connection to the API server."""
    async with kube.connect() as api:
        pool = Promote(api)
        yield [pool.set_weights, pool.withdraw_canary, pool.settle]
