"""The gpu pool: how nodes name a GPU class, how many are free, and the way into and out of a class's line."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

from temporalio import activity
from temporalio.service import RPCError, RPCStatusCode

from activities.fence import check_current_run
from activities.open_runs import find_closed
from plnt.clients import kube
from plnt.clients.kube import NODES, PODS, Kube, Resource
from plnt.errors import NotFound
from plnt.model import gpu_class as classes
from plnt.model import names
from plnt.model.messages import Capacity, CountFree, Done, GpuClass, Join, Leave, ResolveClass
from plnt.model.node import Node, Pod, read_node, read_pod
from plnt.model.placement import count_capacity
from plnt.settings import PoolSettings
from plnt.steps import COUNT_FREE, JOIN_LINE, LEAVE_LINE, RESOLVE_CLASS, Queue, implements

DEVICE_CLASSES = Resource("resource.k8s.io/v1", "deviceclasses")
LIVE_PODS = "status.phase!=Succeeded,status.phase!=Failed"
LINE_WORKFLOW = "GpuPool"
"""Type of the workflow that keeps a class's line; its signals are ``join`` and ``leave``."""


class Gpu:
    """Activities of the gpu pool."""

    def __init__(self, api: Kube, mapped: dict[str, GpuClass], memory: Mapping[str, float] | None = None) -> None:
        self._kube = api
        self._mapped = mapped
        self._memory = memory or {}

    @implements(RESOLVE_CLASS)
    async def resolve_class(self, request: ResolveClass) -> GpuClass:
        """Find how pods ask for a class, and check that some node could hold one of them.

        Raises:
            GpuClassUnknown: no node offers the class.
            SpecInvalid: one pod is larger than any node of the class.
        """
        nodes, extended = await asyncio.gather(self._list_nodes(), self._list_extended())
        chosen = classes.choose_class(request.gpu_class, self._mapped, nodes, extended)
        if _is_counted(chosen.resource_name, nodes) or chosen.resource_name not in extended:
            classes.check_room(request, chosen, nodes)
        return classes.add_memory(request.gpu_class, chosen, nodes, self._memory)

    @implements(JOIN_LINE)
    async def join_line(self, request: Join) -> Done:
        """Ask the class's line for room; it is started if it does not run.

        Raises:
            StaleRun: a newer run took over.
        """
        await check_current_run()
        await activity.client().start_workflow(
            LINE_WORKFLOW,
            id=names.gpu_pool_id(request.gpu_class),
            task_queue=Queue.CONTROL,
            start_signal="join",
            start_signal_args=[request],
            static_summary=f"Line for {request.gpu_class}",
        )
        return Done()

    @implements(LEAVE_LINE)
    async def leave_line(self, request: Leave) -> Done:
        """Give up place or lease; where there is no line there is nothing to give up."""
        line = activity.client().get_workflow_handle(names.gpu_pool_id(request.gpu_class))
        try:
            await line.signal("leave", request)
        except RPCError as error:
            if error.status is not RPCStatusCode.NOT_FOUND:
                raise
        return Done()

    @implements(COUNT_FREE)
    async def count_free(self, request: CountFree) -> Capacity:
        """Count what is free of a class and whether the head of its line fits."""
        nodes, pods, closed = await asyncio.gather(self._list_nodes(), self._list_pods(), _find_closed(request))
        resource = request.head.resource_name if request.head else ""
        uncounted = await self._list_extended() if resource and not _is_counted(resource, nodes) else frozenset()
        return count_capacity(request, nodes, pods, closed=closed, uncounted=uncounted)

    async def _list_nodes(self) -> list[Node]:
        manifests, _ = await self._kube.list(NODES)
        return [read_node(manifest) for manifest in manifests]

    async def _list_pods(self) -> list[Pod]:
        """List the pods of the whole cluster, of each page only what is counted: manifests of thousands are large.

        Those without a node too: the scheduler may have nominated one for them.
        """
        found: list[Pod] = []
        async for page, _ in self._kube.pages(PODS, fields=LIVE_PODS):
            found += [pod for pod in map(read_pod, page) if pod is not None]
        return found

    async def _list_extended(self) -> frozenset[str]:
        """List the resource names that device classes serve; none where the cluster has no such API."""
        try:
            manifests, _ = await self._kube.list(DEVICE_CLASSES)
        except NotFound:
            return frozenset()
        return frozenset(name for m in manifests if (name := m["spec"].get("extendedResourceName")))


def _is_counted(resource: str, nodes: Sequence[Node]) -> bool:
    return any(resource in node.allocatable for node in nodes)


async def _find_closed(request: CountFree) -> list[str]:
    """Find those in the line whose run has ended, the head included."""
    entries = [*request.leases, *([request.head] if request.head else [])]
    closed = await asyncio.gather(*(find_closed(entry.workflow_id, entry.run_id) for entry in entries))
    return [entry.workflow_id for entry, when in zip(entries, closed, strict=True) if when is not None]


@asynccontextmanager
async def open_pool(settings: PoolSettings) -> AsyncIterator[list[Callable[..., Any]]]:
    """Connect to Kubernetes and give the pool's activities.

    Raises:
        ValueError: the administrator's map of classes is malformed.
    """
    mapped = classes.read_class_map(settings.gpu_classes)
    async with kube.connect() as api:
        pool = Gpu(api, mapped, settings.gpu_memory_gib)
        yield [pool.resolve_class, pool.join_line, pool.leave_line, pool.count_free]
