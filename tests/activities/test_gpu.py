"""The gpu pool against a real API server and a real Temporal server."""

import asyncio
import dataclasses
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
from temporalio import workflow
from temporalio.client import Client, WorkflowHandle
from temporalio.contrib.pydantic import pydantic_data_converter
from temporalio.service import RPCError
from temporalio.testing import ActivityEnvironment, WorkflowEnvironment
from temporalio.worker import UnsandboxedWorkflowRunner, Worker

from activities.gpu import DEVICE_CLASSES, LINE_WORKFLOW, Gpu
from plnt.clients import kube as kube_client
from plnt.clients.kube import NODES, PODS, Kube
from plnt.errors import GpuClassUnknown, SpecInvalid, StaleRun
from plnt.model import names
from plnt.model.desired import Ref
from plnt.model.messages import CountFree, Join, LeaseCount, Leave, ResolveClass, Toleration
from plnt.sandbox.cluster import SERVICE_ACCOUNTS, open_kube
from plnt.sandbox.programs import Programs
from plnt.sandbox.running import Sandbox
from plnt.sandbox.waiting import wait_until
from plnt.steps import Queue

REF = Ref(namespace="default", name="m")
OURS = {"plnt.test/made-by": "test-gpu"}


@pytest.fixture(scope="module")
async def kube(control_plane: Sandbox) -> AsyncIterator[Kube]:
    async with open_kube(control_plane.kubeconfig) as kube:
        yield kube
        # The scheduler would put other tests' pods on these nodes, which have no kubelet.
        for node in (await kube.list(NODES, labels=",".join(f"{key}={value}" for key, value in OURS.items())))[0]:
            await kube.delete(NODES, None, node["metadata"]["name"])


@pytest.fixture(scope="module")
async def temporal(programs: Programs) -> AsyncIterator[Client]:
    async with await WorkflowEnvironment.start_local(
        data_converter=pydantic_data_converter, dev_server_existing_path=str(programs.temporal)
    ) as environment:
        yield environment.client


@pytest.fixture
def gpu_class() -> str:
    return f"plnt.test/{uuid.uuid4().hex[:8]}"


async def add_node(kube: Kube, gpu_class: str, gpus: int, **spec: Any) -> str:
    """Add a ready node and wait until the cluster lets pods on it."""
    name = f"node-{uuid.uuid4().hex[:8]}"
    meta = {"name": name, "labels": OURS}
    await kube.create(NODES, None, {"apiVersion": "v1", "kind": "Node", "metadata": meta, "spec": spec})
    quantities = {gpu_class: str(gpus), "cpu": "64", "memory": "512Gi", "pods": "110"}
    now = {"lastHeartbeatTime": None, "lastTransitionTime": None, "reason": "Test", "message": ""}
    status = {
        "capacity": quantities,
        "allocatable": quantities,
        "conditions": [{"type": "Ready", "status": "True", **now}],
    }
    await kube.merge(NODES, None, name, {"status": status}, sub="status")

    async def is_open() -> bool:
        taints = (await kube.get(NODES, None, name))["spec"].get("taints") or []
        return not any(taint["key"].startswith("node.kubernetes.io/not-ready") for taint in taints)

    await wait_until(is_open, 60)
    return name


async def add_pod(kube: Kube, gpu_class: str, gpus: int, node: str, release: str) -> None:
    """Bind a pod to a node, as the scheduler would."""

    async def has_account() -> bool:
        return await kube.find(SERVICE_ACCOUNTS, "default", "default") is not None

    await wait_until(has_account, 60)
    manifest = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": f"pod-{uuid.uuid4().hex[:8]}", "labels": {"app.kubernetes.io/instance": release}},
        "spec": {
            "nodeName": node,
            "containers": [{"name": "c", "image": "i", "resources": {"limits": {gpu_class: str(gpus)}}}],
        },
    }
    await kube.create(PODS, "default", manifest)


def ask(gpu_class: str, gpu: int = 1, memory_gib: int = 1) -> ResolveClass:
    return ResolveClass(ref=REF, gpu_class=gpu_class, gpu=gpu, memory_gib=memory_gib)


def entry(gpu_class: str, name: str, pods: int, size: int, run_id: str) -> LeaseCount:
    return LeaseCount(
        workflow_id=name,
        run_id=run_id,
        namespace="default",
        release=name,
        pods=pods,
        gpus_per_pod=size,
        resource_name=gpu_class,
    )


def join(gpu_class: str, workflow_id: str, run_id: str) -> Join:
    return Join(
        ref=REF,
        workflow_id=workflow_id,
        run_id=run_id,
        uid="u",
        release="m-0a1b2c3d",
        gpu_class=gpu_class,
        resource_name=gpu_class,
        pods=1,
        gpus_per_pod=1,
        poll_seconds=1,
    )


async def act(client: Client, call: Callable[..., Awaitable[Any]], request: Any, **info: str) -> Any:
    environment = ActivityEnvironment(client)
    environment.info = dataclasses.replace(environment.info, **info)  # type: ignore[arg-type]
    return await environment.run(call, request)


@workflow.defn(name=LINE_WORKFLOW)
class RecordingLine:
    """A line that only keeps what it was told."""

    @workflow.init
    def __init__(self, _: Any = None) -> None:
        self.joins: list[Join] = []
        self.leaves: list[Leave] = []

    @workflow.signal
    def join(self, word: Join) -> None:
        self.joins.append(word)

    @workflow.signal
    def leave(self, word: Leave) -> None:
        self.leaves.append(word)

    @workflow.query
    def told(self) -> list[str]:
        return [word.run_id for word in self.joins] + [word.run_id for word in self.leaves]

    @workflow.run
    async def run(self, _: Any = None) -> None:
        await workflow.wait_condition(lambda: len(self.leaves) > 0)


@workflow.defn(name="Waiting")
class Waiting:
    """A rollout that only stays open."""

    @workflow.run
    async def run(self) -> None:
        await workflow.wait_condition(lambda: False)


@pytest.fixture
async def line_worker(temporal: Client) -> AsyncIterator[None]:
    workflows = [RecordingLine, Waiting]
    runner = UnsandboxedWorkflowRunner()
    async with Worker(temporal, task_queue=Queue.CONTROL, workflows=workflows, workflow_runner=runner):
        yield


async def start_rollout(temporal: Client, workflow_id: str) -> WorkflowHandle[Any, Any]:
    return await temporal.start_workflow("Waiting", id=workflow_id, task_queue="nobody-polls")


async def test_class_is_resolved_from_the_nodes_of_the_cluster(kube: Kube, gpu_class: str) -> None:
    await add_node(kube, gpu_class, 8)
    chosen = await ActivityEnvironment().run(Gpu(kube, {}).resolve_class, ask(gpu_class, 8, 500))
    assert chosen.resource_name == gpu_class
    assert chosen.tolerations == [Toleration(key=gpu_class)]


async def test_class_that_nobody_offers_is_refused_with_what_is_there(kube: Kube, gpu_class: str) -> None:
    await add_node(kube, f"{gpu_class}-other", 8)
    with pytest.raises(GpuClassUnknown, match=f"{gpu_class}-other"):
        await ActivityEnvironment().run(Gpu(kube, {}).resolve_class, ask(gpu_class))


@pytest.mark.parametrize(("gpu", "gib", "words"), [(9, 1, "gpu: 9 .* use 8"), (1, 4000, "memoryGiB: 4000 .* use 512")])
async def test_pod_beyond_any_node_is_refused_with_the_limit(
    kube: Kube, gpu_class: str, gpu: int, gib: int, words: str
) -> None:
    await add_node(kube, gpu_class, 8)
    with pytest.raises(SpecInvalid, match=words):
        await ActivityEnvironment().run(Gpu(kube, {}).resolve_class, ask(gpu_class, gpu, gib))


async def test_device_class_is_resolved_without_nodes(kube: Kube, temporal: Client, gpu_class: str) -> None:
    name = gpu_class.replace("/", ".")
    spec = {"extendedResourceName": gpu_class}
    body = {"apiVersion": DEVICE_CLASSES.api, "kind": "DeviceClass", "metadata": {"name": name}, "spec": spec}
    await kube.create(DEVICE_CLASSES, None, body)
    chosen = await ActivityEnvironment().run(Gpu(kube, {}).resolve_class, ask(gpu_class, 16))
    assert chosen.resource_name == gpu_class
    run = await start_rollout(temporal, f"rollout.default.{name}")
    head = entry(gpu_class, run.id, 1, 16, run.first_execution_run_id or "")
    question = CountFree(gpu_class=gpu_class, leases=[], head=head)
    assert (await act(temporal, Gpu(kube, {}).count_free, question)).head_fits


async def test_free_gpus_are_counted_on_the_cluster(kube: Kube, temporal: Client, gpu_class: str) -> None:
    node = await add_node(kube, gpu_class, 8)
    await add_node(kube, gpu_class, 8, unschedulable=True)
    run = await start_rollout(temporal, f"rollout.default.{uuid.uuid4().hex}")
    gone = await start_rollout(temporal, f"rollout.default.{uuid.uuid4().hex}")
    await gone.terminate()
    await add_pod(kube, gpu_class, 2, node, run.id)
    question = CountFree(
        gpu_class=gpu_class,
        leases=[
            entry(gpu_class, run.id, 2, 2, run.first_execution_run_id or ""),
            entry(gpu_class, gone.id, 1, 8, gone.first_execution_run_id or ""),
            entry(gpu_class, "rollout.default.never-was", 1, 8, str(uuid.uuid4())),
        ],
        head=entry(gpu_class, run.id, 1, 4, run.first_execution_run_id or ""),
    )
    answer = await act(temporal, Gpu(kube, {}).count_free, question)
    assert answer.bound[run.id] == 1
    assert answer.closed == sorted([gone.id, "rollout.default.never-was"])
    assert answer.free == 4
    assert answer.head_fits


async def test_free_gpus_are_counted_over_all_pages_of_pods(
    kube: Kube, temporal: Client, gpu_class: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = await add_node(kube, gpu_class, 8)
    run = await start_rollout(temporal, f"rollout.default.{uuid.uuid4().hex}")
    for _ in range(3):
        await add_pod(kube, gpu_class, 2, node, run.id)
    lease = entry(gpu_class, run.id, 3, 2, run.first_execution_run_id or "")
    monkeypatch.setattr(kube_client, "PAGE", 1)
    answer = await act(temporal, Gpu(kube, {}).count_free, CountFree(gpu_class=gpu_class, leases=[lease], head=None))
    assert (answer.bound, answer.free) == ({run.id: 3}, 2)


@pytest.mark.usefixtures("line_worker")
async def test_joining_starts_the_line_and_leaving_reaches_it(kube: Kube, temporal: Client, gpu_class: str) -> None:
    run = await start_rollout(temporal, f"rollout.default.{uuid.uuid4().hex}")
    run_id = run.first_execution_run_id or ""
    info = {"workflow_id": run.id, "workflow_run_id": run_id}
    gpu = Gpu(kube, {})
    for _ in range(2):
        await act(temporal, gpu.join_line, join(gpu_class, run.id, run_id), **info)
    line = temporal.get_workflow_handle(names.gpu_pool_id(gpu_class))
    assert await line.query("told") == [run_id, run_id]
    leave = Leave(workflow_id=run.id, run_id=run_id, gpu_class=gpu_class)
    await act(temporal, gpu.leave_line, leave, **info)
    await asyncio.wait_for(line.result(), 60)
    await act(temporal, gpu.leave_line, leave, **info)


async def test_overtaken_run_does_not_join(kube: Kube, temporal: Client, gpu_class: str) -> None:
    run = await start_rollout(temporal, f"rollout.default.{uuid.uuid4().hex}")
    old = str(uuid.uuid4())
    info = {"workflow_id": run.id, "workflow_run_id": old}
    with pytest.raises(StaleRun):
        await act(temporal, Gpu(kube, {}).join_line, join(gpu_class, run.id, old), **info)
    with pytest.raises(RPCError, match="not found"):
        await temporal.get_workflow_handle(names.gpu_pool_id(gpu_class)).describe()


async def test_leaving_a_line_that_never_was_is_done(kube: Kube, temporal: Client, gpu_class: str) -> None:
    leave = Leave(workflow_id="rollout.default.m", run_id="r", gpu_class=gpu_class)
    await act(temporal, Gpu(kube, {}).leave_line, leave)
