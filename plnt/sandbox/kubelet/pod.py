"""One pod from its binding to its removal."""

import asyncio
import logging
from dataclasses import replace
from typing import Any

from plnt.clients.kube import PODS, Object
from plnt.errors import Conflict, NotFound, PlntError
from plnt.sandbox.addresses import listen_address
from plnt.sandbox.kubelet.container import Container
from plnt.sandbox.kubelet.environment import ConfigMissing
from plnt.sandbox.kubelet.pod_site import PodSite, Shared, stamp
from plnt.sandbox.kubelet.projected import RENEW_SECONDS, fill_projected, has_token
from plnt.sandbox.kubelet.status import PodView, render_status
from plnt.sandbox.kubelet.volumes import MountFailed, mount_volumes, remove_volumes

logger = logging.getLogger(__name__)

MANAGER = "kubelet"
"""Field manager of what the stand-in writes."""
_RETRY_SECONDS = 0.5
_END_SECONDS = 2.0
_TERMINAL = frozenset({"Succeeded", "Failed"})


class PodWorker:
    """Keeps one pod as its object says until the object is gone."""

    def __init__(self, shared: Shared, pod: Object, address: str) -> None:
        """Take a pod bound to one of the nodes, and the address that it gets."""
        self.site = PodSite(shared, pod, address, listen_address(address), self._report)
        self._started_at = (pod.get("status") or {}).get("startTime") or stamp()
        earlier = {c["name"]: c for c in (pod.get("status") or {}).get("containerStatuses") or []}
        self.containers = [Container(self.site, spec, earlier.get(spec["name"])) for spec in pod["spec"]["containers"]]
        self._changed = asyncio.Event()
        self._leaving = asyncio.Event()
        self._vanished = asyncio.Event()
        self._stopping = False
        self._reported: Object = {}
        self.update(pod)

    @property
    def key(self) -> tuple[str, str]:
        """Namespace and name."""
        return self.site.namespace, self.site.name

    def find_container(self, name: str) -> Container | None:
        """Find a container by its name."""
        return next((container for container in self.containers if container.name == name), None)

    def update(self, pod: Object) -> None:
        """Take a newer version of the object."""
        self.site.pod = pod
        if pod["metadata"].get("deletionTimestamp"):
            self._leaving.set()

    def vanish(self) -> None:
        """Take notice that the object is gone: kill what runs."""
        self._vanished.set()
        self._leaving.set()

    async def run(self) -> None:
        """Work until the pod is gone; a cancel kills its processes."""
        is_over = (self.site.pod.get("status") or {}).get("phase") in _TERMINAL
        async with asyncio.TaskGroup() as group:
            writer = group.create_task(self._keep_status())
            work = group.create_task(self._work()) if not is_over else None
            await self._leaving.wait()
            self._stopping = True
            if work is not None:
                await self._stop(work)
            writer.cancel()
        if not self._vanished.is_set():
            await self._remove()
        remove_volumes(self.site.folder / "volumes")

    def _report(self) -> None:
        self._changed.set()

    async def _work(self) -> None:
        self._report()
        if self.site.pod["spec"].get("initContainers"):
            self.site.event("Warning", "FailedCreatePodSandBox", "init containers are not simulated")
            return
        self.site.volumes = await self._mount()
        renewing = asyncio.create_task(self._renew_tokens())
        try:
            async with asyncio.TaskGroup() as group:
                for container in self.containers:
                    group.create_task(container.run())
        finally:
            renewing.cancel()

    async def _renew_tokens(self) -> None:
        """Give the pod new tokens again and again, until its containers have ended."""
        volumes = [volume for volume in self.site.pod["spec"].get("volumes") or [] if has_token(volume)]
        while volumes:
            await asyncio.sleep(RENEW_SECONDS)
            for volume in volumes:
                try:
                    await fill_projected(
                        self.site.shared.kube, self.site.pod, volume, self.site.volumes[volume["name"]]
                    )
                except (PlntError, ConfigMissing) as error:
                    logger.warning("token not renewed yet", extra={"pod": self.site.name, "fault": str(error)})

    async def _mount(self) -> dict[str, Any]:
        shared = self.site.shared
        while True:
            try:
                return await mount_volumes(
                    shared.kube, self.site.pod, shared.state / "cache", self.site.folder / "volumes"
                )
            except (MountFailed, ConfigMissing) as error:
                self.site.event("Warning", "FailedMount", str(error))
            except PlntError as error:
                logger.warning("volumes not mounted yet", extra={"pod": self.site.name, "reason": error.reason})
            await asyncio.sleep(shared.backoff_seconds / 5)

    async def _stop(self, work: asyncio.Task[None]) -> None:
        """Stop all containers at once, within the grace period unless the object is gone already."""
        grace = self.site.pod["metadata"].get("deletionGracePeriodSeconds", self.site.grace_seconds)
        stopping = asyncio.create_task(self._stop_containers(grace))
        vanished = asyncio.create_task(self._vanished.wait())
        ends: list[asyncio.Task[Any]] = [stopping, vanished]
        await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        vanished.cancel()
        if not stopping.done():
            stopping.cancel()
        elif any(container.running for container in self.containers):
            await asyncio.wait([work], timeout=_END_SECONDS)
        work.cancel()
        await asyncio.wait([work])

    async def _stop_containers(self, grace: float) -> None:
        await asyncio.gather(*(container.stop(grace) for container in self.containers))

    async def _keep_status(self) -> None:
        """Write the status whenever it changed, until the pod is gone."""
        while True:
            await self._changed.wait()
            self._changed.clear()
            try:
                await self._write_status()
            except NotFound:
                self.vanish()
                return
            except PlntError as error:
                logger.warning("status not written yet", extra={"pod": self.site.name, "fault": str(error)})
                self._changed.set()
                await asyncio.sleep(_RETRY_SECONDS)

    async def _write_status(self) -> None:
        site = self.site
        view = PodView(
            [container.view for container in self.containers],
            site.address,
            self._started_at,
            site.pod["spec"].get("restartPolicy", "Always"),
            self._stopping,
        )
        status = render_status(view, self._reported or site.pod.get("status") or {}, stamp())
        if status == self._reported:
            return
        meta = {"name": site.name, "namespace": site.namespace, "uid": site.uid}
        body = {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "status": status}
        await site.shared.kube.apply(PODS, body, manager=MANAGER, sub="status")
        self._reported = status

    async def _remove(self) -> None:
        """Write the last status and remove the object: only that makes room on the node."""
        for container in self.containers:
            container.view = replace(container.view, ready=False)
        while True:
            try:
                await self._write_status()
                await self.site.shared.kube.delete(
                    PODS, self.site.namespace, self.site.name, uid=self.site.uid, grace=0
                )
            except (NotFound, Conflict):
                return
            except PlntError as error:
                logger.warning("pod not removed yet", extra={"pod": self.site.name, "reason": error.reason})
                await asyncio.sleep(_RETRY_SECONDS)
            else:
                return
