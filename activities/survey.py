"""The look at what exists of a WorkflowRun, and its claim on the base name."""

import asyncio
import logging
from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError
from temporalio import activity

from activities.fence import check_current_run
from plnt.clients.kube import CLAIMS, DEPLOYMENTS, SERVICES, VIRTUAL_SERVICES, Kube, Object
from plnt.clients.release_records import fetch_records
from plnt.errors import Conflict, NameTaken, SpecInvalid
from plnt.model import names, traffic
from plnt.model.messages import ReleaseName, ReleaseSeen, ServingRecord, SurveyRequest, World
from plnt.model.pod_state import Deployment
from plnt.model.release_recovery import ReleaseRecord, newest_record

logger = logging.getLogger(__name__)


async def claim_name(kube: Kube, request: SurveyRequest) -> None:
    """Take the base name by creating the front Service; create, since an apply would take over another's.

    Raises:
        NameTaken: another WorkflowRun, or an object that plnt did not make, holds it.
        Conflict: it went away while it was looked at; claim again.
    """
    ref, base = request.ref, request.base
    held = await kube.find(SERVICES, ref.namespace, base)
    if held is None:
        await check_current_run()
        try:
            held = await kube.create(SERVICES, ref.namespace, _render_claim(request))
        except Conflict:
            held = await kube.find(SERVICES, ref.namespace, base)
            if held is None:
                raise
    owner = traffic.read_claim(held)
    if owner != ref.name:
        holder = f"WorkflowRun {owner}" if owner else "a Service that plnt did not make"
        raise NameTaken(
            f"Service {ref.namespace}/{base} belongs to {holder}: give WorkflowRun {ref.name} another metadata.name, "
            "or remove that one"
        )


async def give_name_back(kube: Kube, request: ReleaseName) -> None:
    """Delete the front Service if this WorkflowRun claimed it and nothing serves through it.

    Raises:
        Conflict: it changed meanwhile: something may serve through it now.
        StaleRun: a newer run took over.
    """
    namespace = request.ref.namespace
    service = await kube.find(SERVICES, namespace, request.base)
    if service is None or traffic.read_claim(service) != request.ref.name:
        return
    if service["spec"].get("selector") or _read_record_text(service):
        return
    await check_current_run()
    await kube.delete_seen(SERVICES, service)


async def check_cache_claim(kube: Kube, namespace: str, cache_volume: Mapping[str, Any]) -> None:
    """Check that pods of ``namespace`` can mount the weights cache.

    Raises:
        SpecInvalid: the cache is a claim that is missing or not bound there.
    """
    source = cache_volume.get("persistentVolumeClaim")
    if source is None:
        return
    name = source.get("claimName", "")
    claim = await kube.find(CLAIMS, namespace, name)
    phase = "missing" if claim is None else (claim.get("status") or {}).get("phase", "Pending")
    if phase != "Bound":
        raise SpecInvalid(
            f"PersistentVolumeClaim {namespace}/{name} of the weights cache is {phase}: create a claim of that name in "
            f"namespace {namespace} on the volume of the weights pool and wait until it is Bound"
        )


async def look_at_world(kube: Kube, request: SurveyRequest) -> World:
    """Read what exists of the WorkflowRun.

    Where another holds the base name nothing there is this one's: releases carry the base name alone, and two
    WorkflowRuns such as ``a.b`` and ``a-b`` share it.
    """
    namespace, base = request.ref.namespace, request.base
    service, route, records, (deployments, _) = await asyncio.gather(
        kube.find(SERVICES, namespace, base),
        kube.find(VIRTUAL_SERVICES, namespace, base),
        fetch_records(kube, namespace, owner=base),
        kube.list(DEPLOYMENTS, namespace, labels=f"{names.OWNER_LABEL}={base}"),
    )
    if service is not None and traffic.read_claim(service) != request.ref.name:
        return World()
    if route is not None and not traffic.is_own_route(_site(request), route):
        route = None
    selected = None if service is None else traffic.read_selected_release(service)
    selector = None if selected is None else names.revision_of(base, selected)
    annotated = None if route is None else traffic.read_serving(route)
    return World(
        serving=annotated or selector,
        record=None if service is None else _read_record(service),
        weights={} if route is None else traffic.read_weights(base, route),
        releases=list_releases(base, records, [Deployment.model_validate(found) for found in deployments]),
        selector_revision=selector,
    )


def list_releases(base: str, records: list[ReleaseRecord], deployments: list[Deployment]) -> list[ReleaseSeen]:
    """Join Helm's records with Deployments; a Deployment without a record is of a release that lost it."""
    sizes = {deployment.metadata.name: deployment for deployment in deployments}
    seen: list[ReleaseSeen] = []
    for name in sorted({record.release for record in records} | set(sizes)):
        newest = newest_record([record for record in records if record.release == name])
        deployment = sizes.get(name)
        seen.append(
            ReleaseSeen(
                name=name,
                revision=names.revision_of(base, name),
                status="unknown" if newest is None else newest.status,
                replicas=0 if deployment is None else deployment.spec.replicas,
                ready=0 if deployment is None else deployment.status.ready_replicas,
            )
        )
    return seen


def _site(request: SurveyRequest) -> traffic.Site:
    return traffic.Site(
        namespace=request.ref.namespace,
        name=request.ref.name,
        base=request.base,
        cluster_domain=request.policy.cluster_domain,
        run_id=activity.info().workflow_run_id or "",
    )


def _render_claim(request: SurveyRequest) -> Object:
    """Give the front Service as it is before anything serves: without a selector it has no endpoints."""
    return traffic.render_front(_site(request), None)


def _read_record_text(service: Object) -> str:
    annotations = service["metadata"].get("annotations") or {}
    return str(annotations.get(names.RECORD_ANNOTATION, ""))


def _read_record(service: Object) -> ServingRecord | None:
    """Give the serving record; one that is not understood counts as none, so that the run deploys afresh."""
    try:
        return traffic.read_record(service)
    except ValidationError:
        logger.warning("serving record not understood", extra={"error": _read_record_text(service)[:200]})
        return None
