"""The janitor's steps on the cluster: releases whose WorkflowRun is gone, and the weights trees in use."""

import logging
from datetime import UTC, datetime

from activities.open_runs import find_closed
from activities.progress import heartbeat
from activities.releases import Releases
from plnt.clients.kube import DEPLOYMENTS, PODS, SERVICES, WORKFLOW_RUNS, Kube
from plnt.clients.release_records import fetch_all_records
from plnt.model import names
from plnt.model.housekeeping import Housekeeping, LiveTrees, Swept, choose_orphans
from plnt.model.live_trees import read_trees
from plnt.model.messages import ReleaseRequest

logger = logging.getLogger(__name__)


async def sweep_releases(kube: Kube, releases: Releases, where: Housekeeping) -> Swept:
    """Uninstall every release of ours whose WorkflowRun is gone and has no open run.

    Releases are listed before WorkflowRuns: one that is made meanwhile is then known.
    """
    swept: list[str] = []
    async with heartbeat():
        for namespace, records in sorted((await fetch_all_records(kube, places(where))).items()):
            for orphan in choose_orphans(records, namespace, await _known(kube, namespace), datetime.now(UTC)):
                if await _is_wanted(kube, orphan):
                    continue
                logger.warning("release without a WorkflowRun", extra={"release": f"{namespace}/{orphan.release}"})
                await releases.uninstall(orphan)
                swept.append(f"{namespace}/{orphan.release}")
    return Swept(releases=swept)


async def _known(kube: Kube, namespace: str) -> set[str]:
    found, _ = await kube.list(WORKFLOW_RUNS, namespace)
    return {str(one["metadata"]["name"]) for one in found}


async def _is_wanted(kube: Kube, orphan: ReleaseRequest) -> bool:
    """Look once more: whether the claim on the base name is held by a WorkflowRun or run that exists by now."""
    namespace, base = orphan.ref.namespace, orphan.base
    if any(names.base_name(name) == base for name in await _known(kube, namespace)):
        return True
    service = await kube.find(SERVICES, namespace, base)
    notes = {} if service is None else service["metadata"].get("annotations") or {}
    claimed = {base, str(notes.get(names.CLAIM_ANNOTATION, base))}
    return any([(await find_closed(names.rollout_id(namespace, name))) is None for name in sorted(claimed)])


async def list_live_trees(kube: Kube, where: Housekeeping) -> LiveTrees:
    """Give the trees that pods or Deployments of ours mount, and those of serving records."""
    found: set[str] = set()
    for namespace in places(where):
        for resource in (PODS, DEPLOYMENTS, SERVICES):
            objects, _ = await kube.list(resource, namespace, labels=names.OWNER_LABEL)
            found |= read_trees(objects)
    return LiveTrees(trees=sorted(found))


def places(where: Housekeeping) -> list[str | None]:
    """Give the namespaces to list; none = all at once."""
    return list(where.namespaces) or [None]
