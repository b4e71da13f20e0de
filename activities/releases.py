"""Installs, sizes and uninstalls Helm releases, whatever state an earlier attempt left them in."""

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from temporalio import activity

from activities.clock import ServerClock
from activities.drain import Drain
from activities.extra_values import check_values, fetch_values
from activities.fence import check_current_run
from activities.progress import heartbeat, report_progress
from activities.release_pods import POLL_SECONDS, fetch_pods
from plnt.clients.helm import Helm
from plnt.clients.kube import CONFIG_MAPS, DEPLOYMENTS, REPLICA_SETS, SERVICES, Kube, Object, Resource
from plnt.clients.release_records import fetch_records
from plnt.errors import ApiUnavailable, Conflict, NameTaken
from plnt.model import names
from plnt.model.extra_values import merge_values
from plnt.model.helm_values import render_values
from plnt.model.messages import ExtraValues, InstallRelease, ReleaseRequest, SurveyRequest
from plnt.model.release_recovery import (
    HELM_AT_WORK,
    Action,
    Recovery,
    ReleaseRecord,
    choose_before_install,
    choose_before_uninstall,
)
from plnt.model.traffic import INSTANCE_LABEL
from plnt.model.workflow_run import Runtime

BUDGETS = Resource("policy/v1", "poddisruptionbudgets")

MOST_WRITES = 20
"""Writes of one attempt on a Deployment; its controller changes the status, and so the version, several times while
pods start."""
_END_OF_TIME = datetime.max.replace(tzinfo=UTC)

Choose = Callable[[list[ReleaseRecord], datetime], Recovery]


@dataclass(frozen=True, slots=True)
class Releases:
    """The releases of one cluster, installed from ``charts`` with weights on ``cache_volume``."""

    kube: Kube
    helm: Helm
    charts: Mapping[Runtime, Path]
    cache_volume: Mapping[str, Any]

    async def install(self, request: InstallRelease) -> None:
        """Bring the release to ``deployed`` at its size; one that is there already is left as it is.

        Its name holds the revision, so what is deployed under it has the same pods. Pods are not waited for.

        Raises:
            NameTaken: the release, or an object of its name, is not this WorkflowRun's.
            SpecInvalid: the extra values are not those that were checked.
        """
        namespace, release = request.ref.namespace, request.release
        action = await self._recover(namespace, request.base, release, choose_before_install)
        if action is Action.NOTHING and await self.kube.find(DEPLOYMENTS, namespace, release) is not None:
            await self.size(namespace, release, request.replicas)
            return
        extra = await fetch_values(self.kube, request)
        values = merge_values(render_values(request, self.cache_volume), extra)
        await check_current_run()
        await self.helm.install(release, namespace, self.charts[request.spec.runtime], values, _labels(request))
        await self.size(namespace, release, request.replicas)
        after = choose_before_install(await fetch_records(self.kube, namespace, release=release), ServerClock().now())
        if after.action is not Action.NOTHING:
            raise ApiUnavailable(f"release {namespace}/{release}: helm ended but the release is not deployed")

    async def check_values(self, request: SurveyRequest) -> ExtraValues | None:
        """Check the extra values that a WorkflowRun asks for; none = it asks for none."""
        if request.runtime is None or not request.values_from:
            return None
        chart = self.charts[request.runtime]
        return await check_values(self.kube, self.helm, chart, request.ref.namespace, request.values_from)

    async def size(self, namespace: str, release: str, replicas: int) -> None:
        """Set the size through the scale subresource, read back, and let a paused Deployment go.

        Raises:
            NotFound: there is no such Deployment.
            Conflict: others changed it before each write, or sized it otherwise after each.
            StaleRun: a newer run took over.
        """
        found = None
        for _ in range(MOST_WRITES):
            deployment = await self.kube.get(DEPLOYMENTS, namespace, release)
            found = deployment["spec"].get("replicas")
            if found == replicas and not deployment["spec"].get("paused"):
                return
            await check_current_run()
            with suppress(Conflict):
                await self._change_size(deployment, replicas)
        raise Conflict(f"Deployment {namespace}/{release}: sized to {replicas}, read back {found}: who else sizes it?")

    async def _change_size(self, seen: Object, replicas: int) -> None:
        """Set the size, or if that is right let it go; only on the very Deployment that was seen."""
        meta = seen["metadata"]
        pin = {"metadata": {"resourceVersion": meta["resourceVersion"]}}
        if seen["spec"].get("replicas") != replicas:
            body = {**pin, "spec": {"replicas": replicas}}
            await self.kube.merge(DEPLOYMENTS, meta["namespace"], meta["name"], body, sub="scale")
        else:
            body = {**pin, "spec": {"paused": False}}
            await self.kube.merge(DEPLOYMENTS, meta["namespace"], meta["name"], body)

    async def uninstall(self, request: ReleaseRequest) -> None:
        """Drain, uninstall and wait until nothing of the release is left.

        Absent is done, and so is a release of somebody else: nothing of this WorkflowRun is left under the name.
        """
        namespace, release = request.ref.namespace, request.release
        records = await fetch_records(self.kube, namespace, release=release)
        if any(record.owner != request.base for record in records):
            return
        drain = Drain()
        drain.begin()
        async with heartbeat(drain.read):
            if not await self._list_leftovers(request):
                return
            await drain.wait(request.drain_seconds)
            await self._recover(namespace, request.base, release, choose_before_uninstall)
            await self._delete_orphans(request)
            await self._await_gone(request)

    async def _recover(self, namespace: str, base: str, release: str, choose: Choose) -> Action:
        """Do what the table says until it says that nothing, or the install, is left to do."""
        clock = ServerClock()
        began = clock.now()
        while True:
            # A record from the future, by a clock that was set meanwhile, is as old as it was watched.
            now = clock.now() if clock.now() - began < HELM_AT_WORK else _END_OF_TIME
            records = await fetch_records(self.kube, namespace, release=release)
            _refuse_foreign(records, namespace, base)
            recovery = choose(records, now)
            match recovery.action:
                case Action.WAIT:
                    await report_progress(f"another helm may be at work on release {release}")
                    await asyncio.sleep(min(recovery.after.total_seconds(), POLL_SECONDS))
                case Action.UNINSTALL:
                    await check_current_run()
                    await self.helm.uninstall(release, namespace)
                case Action.ROLL_BACK:
                    await check_current_run()
                    await self.helm.roll_back(release, namespace, recovery.version)
                case _:
                    return recovery.action

    async def _delete_orphans(self, request: ReleaseRequest) -> None:
        """Delete objects of the release that have no Helm record, or no Deployment, any more.

        The cluster's garbage collector misses a ReplicaSet at times when the API server was restarted meanwhile.
        """
        for resource in (DEPLOYMENTS, REPLICA_SETS, SERVICES, BUDGETS, CONFIG_MAPS):
            found, _ = await self.kube.list(resource, request.ref.namespace, labels=_own(request))
            for one in found:
                if one["metadata"].get("deletionTimestamp") is None:
                    await check_current_run()
                    await self._delete_orphan(resource, one)

    async def _delete_orphan(self, resource: Resource, seen: Object) -> None:
        if resource is REPLICA_SETS:
            # Its controller writes its status all the time, so only its uid is a precondition.
            meta = seen["metadata"]
            await self.kube.delete(resource, meta["namespace"], meta["name"], uid=meta["uid"])
        else:
            await self.kube.delete_seen(resource, seen)

    async def _await_gone(self, request: ReleaseRequest) -> None:
        said = ""
        while left := await self._list_leftovers(request):
            if left != said:
                said = left
                await report_progress(f"waiting for the end of {left}")
            await asyncio.sleep(POLL_SECONDS / 2)

    async def _list_leftovers(self, request: ReleaseRequest) -> str:
        """Name what is left of the release; empty when nothing is."""
        namespace, release = request.ref.namespace, request.release
        left = [f"Helm record v{one.version}" for one in await fetch_records(self.kube, namespace, release=release)]
        for resource in (DEPLOYMENTS, REPLICA_SETS, SERVICES, BUDGETS, CONFIG_MAPS):
            found, _ = await self.kube.list(resource, namespace, labels=_own(request))
            left += [f"{resource.plural} {one['metadata']['name']}" for one in found]
        left += [f"pod {pod.metadata.name}" for pod in await fetch_pods(self.kube, namespace, release)]
        return ", ".join(left)


def _own(request: ReleaseRequest) -> str:
    return f"{INSTANCE_LABEL}={request.release},{names.OWNER_LABEL}={request.base}"


def _labels(request: InstallRelease) -> dict[str, str]:
    return {names.OWNER_LABEL: request.base, names.RUN_LABEL: activity.info().workflow_run_id or ""}


def _refuse_foreign(records: list[ReleaseRecord], namespace: str, base: str) -> None:
    for record in records:
        if record.owner != base:
            owner = f"WorkflowRun base name {record.owner}" if record.owner else "somebody else than plnt"
            raise NameTaken(f"Helm release {namespace}/{record.release} belongs to {owner}: uninstall or rename it")
