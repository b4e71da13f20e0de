"""Registers the simulated nodes and keeps them alive."""

import asyncio
import logging
from datetime import UTC, datetime

from plnt.clients.kube import NODES, PODS, Kube, Object, Resource
from plnt.errors import Conflict, NotFound, PlntError
from plnt.sandbox.kubelet.control import SimulatedNode
from plnt.sandbox.kubelet.pod import MANAGER
from plnt.sandbox.kubelet.pod_site import stamp
from plnt.sandbox.kubelet.status import NODE_ADDRESS

logger = logging.getLogger(__name__)

LEASES = Resource("coordination.k8s.io/v1", "leases")
LEASE_NAMESPACE = "kube-node-lease"
SIMULATED_LABEL = "plnt.work/simulated"
"""Marks the stand-in's nodes, so that it finds those of an earlier one."""
HEARTBEAT_SECONDS = 10.0
"""A kubelet's lease renewal; the controllers wait 50 s for one."""
_LEASE_SECONDS = 40
_NODE_FACTS = (
    "machineID",
    "systemUUID",
    "bootID",
    "kernelVersion",
    "osImage",
    "containerRuntimeVersion",
    "kubeProxyVersion",
    "architecture",
)
"""Fields of ``nodeInfo`` that the API wants and that a simulated node has no truth for."""
_RETRY_SECONDS = 0.5


class NodeKeeper:
    """Makes the API server's nodes those that the control file names."""

    def __init__(self, kube: Kube, port: int) -> None:
        """Use ``kube``; ``port`` is where the stand-in serves logs."""
        self._kube = kube
        self._port = port
        self._wanted: tuple[SimulatedNode, ...] = ()
        self._since: dict[str, str] = {}
        self._poke = asyncio.Event()

    def want(self, nodes: tuple[SimulatedNode, ...]) -> None:
        """Ask for exactly these nodes."""
        self._wanted = nodes
        self._poke.set()

    async def run(self) -> None:
        """Register, renew and remove until cancelled."""
        while True:
            self._poke.clear()
            pause = HEARTBEAT_SECONDS
            try:
                await self._reconcile()
            except PlntError as error:
                logger.warning("nodes not kept yet", extra={"reason": error.reason, "fault": str(error)})
                pause = _RETRY_SECONDS
            try:
                async with asyncio.timeout(pause):
                    await self._poke.wait()
            except TimeoutError:
                continue

    async def _reconcile(self) -> None:
        wanted = self._wanted
        existing, _ = await self._kube.list(NODES, labels=f"{SIMULATED_LABEL}=true")
        names = {node["metadata"]["name"] for node in existing}
        await asyncio.gather(*(self._keep(node, known=node.name in names) for node in wanted))
        for gone in names - {node.name for node in wanted}:
            await self._remove(gone)

    async def _keep(self, node: SimulatedNode, *, known: bool) -> None:
        if not known:
            try:
                await self._kube.create(NODES, None, render_node(node))
            except Conflict:
                await self._kube.merge(NODES, None, node.name, {"metadata": render_node(node)["metadata"]})
            self._since[node.name] = stamp()
        since = self._since.setdefault(node.name, stamp())
        await self._kube.apply(NODES, render_node_status(node, self._port, since), manager=MANAGER, sub="status")
        await self._kube.apply(LEASES, render_lease(node.name), manager=MANAGER)

    async def _remove(self, name: str) -> None:
        """Delete a node and, as their processes ended with it, its pods."""
        pods, _ = await self._kube.list(PODS, fields=f"spec.nodeName={name}")
        for pod in pods:
            meta = pod["metadata"]
            try:
                await self._kube.delete(PODS, meta["namespace"], meta["name"], uid=meta["uid"], grace=0)
            except (Conflict, NotFound):
                continue
        await self._kube.delete(NODES, None, name)
        await self._kube.delete(LEASES, LEASE_NAMESPACE, name)


def render_node(node: SimulatedNode) -> Object:
    """Render a new node; its taints are never changed afterwards."""
    labels = {"kubernetes.io/hostname": node.name, "kubernetes.io/os": "linux", SIMULATED_LABEL: "true", **node.labels}
    body: Object = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": node.name, "labels": labels}}
    if node.taints:
        body["spec"] = {"taints": [dict(taint) for taint in node.taints]}
    return body


def render_node_status(node: SimulatedNode, port: int, since: str) -> Object:
    """Render a healthy node's whole status; ``since`` is when it became ready."""
    healthy = {"Ready": "True", "MemoryPressure": "False", "DiskPressure": "False", "PIDPressure": "False"}
    now = stamp()
    conditions = [
        {
            "type": kind,
            "status": status,
            "reason": "KubeletReady" if kind == "Ready" else f"KubeletHasNo{kind}",
            "message": "simulated node",
            "lastHeartbeatTime": now,
            "lastTransitionTime": since,
        }
        for kind, status in healthy.items()
    ]
    status = {
        "capacity": node.capacity,
        "allocatable": node.capacity,
        "conditions": conditions,
        "addresses": [{"type": "InternalIP", "address": NODE_ADDRESS}, {"type": "Hostname", "address": node.name}],
        "daemonEndpoints": {"kubeletEndpoint": {"Port": port}},
        "nodeInfo": {
            **dict.fromkeys(_NODE_FACTS, "simulated"),
            "operatingSystem": "linux",
            "kubeletVersion": "v1.37.0",
        },
    }
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": node.name}, "status": status}


def render_lease(name: str) -> Object:
    """Render the node's lease, renewed now."""
    renewed = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    spec = {"holderIdentity": name, "leaseDurationSeconds": _LEASE_SECONDS, "renewTime": renewed}
    meta = {"name": name, "namespace": LEASE_NAMESPACE}
    return {"apiVersion": LEASES.api, "kind": "Lease", "metadata": meta, "spec": spec}
