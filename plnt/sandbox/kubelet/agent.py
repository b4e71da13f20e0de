"""The stand-in as a whole: control file, nodes, pods."""

import asyncio
import logging

from plnt.clients.kube import Object
from plnt.sandbox.addresses import pod_address
from plnt.sandbox.kubelet import control
from plnt.sandbox.kubelet.container import Container
from plnt.sandbox.kubelet.nodes import NodeKeeper
from plnt.sandbox.kubelet.pod import PodWorker
from plnt.sandbox.kubelet.pod_site import Shared
from plnt.sandbox.kubelet.pod_watch import follow_pods

logger = logging.getLogger(__name__)

_CONTROL_SECONDS = 0.2
_ADDRESSES = 60_000


class Agent:
    """Plays the kubelets of all simulated nodes."""

    def __init__(self, shared: Shared, port: int, number: int) -> None:
        """Serve logs at ``port``; pods get addresses in range ``number``."""
        self._shared = shared
        self._keeper = NodeKeeper(shared.kube, port)
        self._range = number
        self._next = 0
        self._pods: dict[str, PodWorker] = {}
        self._control = control.Control()
        self._seen = (-1, -1)
        self._group: asyncio.TaskGroup | None = None

    def read_control(self) -> control.Control:
        """Give the control file's newest valid content: who writes a fault and then a pod finds the pod struck."""
        try:
            version = (self._shared.state / control.FILE).stat()
            seen = (version.st_ino, version.st_mtime_ns)
        except FileNotFoundError:
            seen = (0, 0)
        if seen != self._seen:
            self._seen = seen
            self._take_control()
        return self._control

    async def run(self) -> None:
        """Work until cancelled; that kills every process."""
        async with asyncio.TaskGroup() as group:
            self._group = group
            self.read_control()
            group.create_task(self._shared.events.write())
            group.create_task(self._follow_control())
            group.create_task(self._keeper.run())
            group.create_task(follow_pods(self._shared.kube, self._replace, self._take))

    def find_container(self, namespace: str, pod: str, name: str) -> Container | None:
        """Find a container of a pod here."""
        worker = next((worker for worker in self._pods.values() if worker.key == (namespace, pod)), None)
        return worker.find_container(name) if worker else None

    async def _follow_control(self) -> None:
        while True:
            await asyncio.sleep(_CONTROL_SECONDS)
            self.read_control()

    def _take_control(self) -> None:
        """Take the control file's content; one that is wrong changes nothing."""
        try:
            found = control.load(self._shared.state)
        except (ValueError, OSError) as error:
            logger.warning("control file refused", extra={"fault": str(error)})
            return
        if found.nodes != self._control.nodes:
            self._keeper.want(found.nodes)
        self._control = found

    def _replace(self, pods: list[Object]) -> None:
        """Take a full list: what is not in it is gone. Pods that have an address already keep it."""
        present = {pod["metadata"]["uid"] for pod in pods}
        for uid, worker in self._pods.items():
            if uid not in present:
                worker.vanish()
        for pod in sorted(pods, key=lambda pod: not (pod.get("status") or {}).get("podIP")):
            self._take("MODIFIED", pod)

    def _take(self, kind: str, pod: Object) -> None:
        worker = self._pods.get(pod["metadata"]["uid"])
        if kind == "DELETED":
            if worker is not None:
                worker.vanish()
        elif worker is not None:
            worker.update(pod)
        elif any(node.name == pod["spec"].get("nodeName") for node in self._control.nodes):
            self._start(pod)

    def _start(self, pod: Object) -> None:
        assert self._group is not None
        worker = PodWorker(self._shared, pod, self._choose_address(pod))
        self._pods[worker.site.uid] = worker
        self._group.create_task(self._run(worker))

    async def _run(self, worker: PodWorker) -> None:
        try:
            await worker.run()
        finally:
            del self._pods[worker.site.uid]

    def _choose_address(self, pod: Object) -> str:
        taken = {worker.site.address for worker in self._pods.values()}
        earlier = str((pod.get("status") or {}).get("podIP") or "")
        if earlier.startswith(f"10.{self._range}.") and earlier not in taken:
            return earlier
        while True:
            address = pod_address(self._range, self._next)
            self._next = (self._next + 1) % _ADDRESSES
            if address not in taken:
                return address
