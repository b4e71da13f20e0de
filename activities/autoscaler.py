"""The autoscaler of what serves: one object named after the WorkflowRun, moved from release to release.

A WorkflowRun has a HorizontalPodAutoscaler or a ScaledObject, never both: two would size one Deployment in turn.
"""

import asyncio
from time import monotonic

from activities.fence import check_current_run
from plnt.clients.kube import DEPLOYMENTS, Kube, Object, Resource
from plnt.errors import Conflict
from plnt.model import autoscaler
from plnt.model.autoscaler import METRICS_API, Kind, Plan
from plnt.model.messages import AutoscalingState, Settle
from plnt.model.traffic import Site

KEDA_API = "keda.sh/v1alpha1"
RESOURCES = {
    Kind.HPA: Resource("autoscaling/v2", "horizontalpodautoscalers"),
    Kind.KEDA: Resource(KEDA_API, "scaledobjects"),
}
GONE_SECONDS = 10.0
"""Longest wait of one attempt for a deleted autoscaler to be gone; KEDA's finalizer takes its own one along."""
POLL_SECONDS = 0.2


async def settle_autoscaler(kube: Kube, site: Site, request: Settle) -> AutoscalingState | None:
    """Let the size of the recorded release follow the load as the spec asks; none when the spec is not known.

    A promotion that an earlier run left unfinished has no generation: there only the target moves.

    Raises:
        Conflict: another writer came between.
        StaleRun: a newer run took over.
    """
    release = request.record.release
    if request.record.generation == 0:
        await _move(kube, site, release)
        return None
    keda = request.spec.replicas.min == 0 and await kube.serves(KEDA_API)
    plan = autoscaler.plan_autoscaler(request.spec, request.policy, keda=keda)
    for kind in RESOURCES:
        if kind is not plan.kind:
            await _remove(kube, site, kind)
    if plan.kind is not Kind.NONE and not await _write(kube, site, plan, request):
        return _tell_taken(site, plan.kind)
    served = plan.kind is Kind.HPA and await kube.serves(f"{METRICS_API}/v1beta1")
    return autoscaler.describe_plan(plan, request.spec, release, served=served)


async def remove_autoscaler(kube: Kube, site: Site) -> None:
    """Delete the WorkflowRun's autoscaler and wait until it is gone; what others own stays.

    Raises:
        Conflict: another writer came between, or it stays in spite of its deletion.
        StaleRun: a newer run took over.
    """
    for kind in RESOURCES:
        await _remove(kube, site, kind)


async def is_at_zero(kube: Kube, site: Site, release: str) -> bool:
    """Tell whether an autoscaler has taken the last pod of the release away."""
    if await kube.find(RESOURCES[Kind.KEDA], site.namespace, site.base) is None:
        return False
    deployment = await kube.find(DEPLOYMENTS, site.namespace, release)
    return deployment is not None and deployment["spec"].get("replicas") == 0


async def _move(kube: Kube, site: Site, release: str) -> None:
    for kind in RESOURCES:
        found = await _find_own(kube, site, kind)
        if found is not None:
            await _apply(kube, kind, autoscaler.move_target(found, site, release), found)


async def _write(kube: Kube, site: Site, plan: Plan, request: Settle) -> bool:
    """Apply the autoscaler; false when an object of that name is somebody else's."""
    found = await kube.find(RESOURCES[plan.kind], site.namespace, site.base)
    if found is not None and not autoscaler.is_own(site, found):
        return False
    render = autoscaler.render_hpa if plan.kind is Kind.HPA else autoscaler.render_scaled_object
    await _apply(kube, plan.kind, render(site, request.record.release, request.spec, request.policy), found)
    return True


async def _apply(kube: Kube, kind: Kind, wanted: Object, present: Object | None) -> None:
    meta = wanted["metadata"]
    pin = {} if present is None else {"resourceVersion": present["metadata"]["resourceVersion"]}
    await check_current_run()
    await kube.apply(RESOURCES[kind], {**wanted, "metadata": {**meta, **pin}})
    seen = await kube.find(RESOURCES[kind], meta["namespace"], meta["name"])
    if difference := autoscaler.find_difference(wanted, seen):
        raise Conflict(f"{kind} {meta['namespace']}/{meta['name']} was applied, but {difference}")


async def _find_own(kube: Kube, site: Site, kind: Kind) -> Object | None:
    found = await kube.find(RESOURCES[kind], site.namespace, site.base)
    return found if found is not None and autoscaler.is_own(site, found) else None


async def _remove(kube: Kube, site: Site, kind: Kind) -> None:
    found = await _find_own(kube, site, kind)
    if found is None:
        return
    uid = found["metadata"]["uid"]
    await check_current_run()
    await kube.delete_seen(RESOURCES[kind], found)
    deadline = monotonic() + GONE_SECONDS
    while (left := await _find_own(kube, site, kind)) is not None and left["metadata"]["uid"] == uid:
        if monotonic() >= deadline:
            held = ", ".join(left["metadata"].get("finalizers") or ["none"])
            raise Conflict(f"{kind} {site.namespace}/{site.base} was deleted but is still there; finalizers: {held}")
        await asyncio.sleep(POLL_SECONDS)


def _tell_taken(site: Site, kind: Kind) -> AutoscalingState:
    text = f"{kind} {site.namespace}/{site.base} is not plnt's: delete it, or give this WorkflowRun another name"
    return AutoscalingState(ready=False, reason="NameTaken", message=text)
