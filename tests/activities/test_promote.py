"""Traffic moved on a real API server with Istio's kinds, endpoints by the real controller."""

import asyncio
import dataclasses
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, TypeVar, cast
from uuid import uuid4

import pytest
from kubernetes_asyncio.config import kube_config
from temporalio.client import Client
from temporalio.common import WorkflowIDConflictPolicy
from temporalio.testing import ActivityEnvironment, WorkflowEnvironment

from activities import promote
from activities.drain import Draining
from activities.promote import Promote
from plnt.clients.kube import NODES, PODS, SERVICES, VIRTUAL_SERVICES, Kube, Object, Resource
from plnt.errors import AccessDenied, ApiUnavailable, Conflict, EndpointNotReady, NameTaken, NotFound, StaleRun
from plnt.model import names, traffic
from plnt.model.desired import Policy, Ref
from plnt.model.messages import ServingRecord, Settle, Settled, SetWeights, WithdrawCanary
from plnt.model.workflow_run import Autoscaling, Replicas, Spec
from plnt.sandbox.cluster import NAMESPACES, open_kube
from plnt.sandbox.programs import Programs
from plnt.sandbox.running import Sandbox
from plnt.settings import PoolSettings
from plnt.steps import STEPS, Queue
from tests.fakes.temporal_client import FakeTemporal

NAME = "llama-3.1"
BASE = "llama-3-1"
OLD, NEW = "00000001", "00000002"
SPEC = Spec.model_validate(
    {
        "runtime": "vllm",
        "model": {"name": "m", "storageUri": "s3://b/k"},
        "resources": {"gpu": 1, "gpuClass": "nvidia.com/h100", "memoryGiB": 8},
    }
)
HPAS = Resource("autoscaling/v2", "horizontalpodautoscalers")
TARGET = Autoscaling(target_tokens_per_second=1500)
Result = TypeVar("Result")


@pytest.fixture(scope="module")
async def temporal(programs: Programs) -> AsyncIterator[Client]:
    async with await WorkflowEnvironment.start_local(dev_server_existing_path=str(programs.temporal)) as server:
        yield server.client


@pytest.fixture(scope="module")
async def kube(control_plane: Sandbox) -> AsyncIterator[Kube]:
    async with open_kube(control_plane.kubeconfig) as api:
        yield api


@dataclass
class Rig:
    """A namespace of its own, and a run of the rollout that no worker carries on."""

    kube: Kube
    temporal: Client
    namespace: str
    run_id: str = ""

    @property
    def ref(self) -> Ref:
        return Ref(namespace=self.namespace, name=NAME)

    async def start_run(self) -> None:
        """Start the rollout's newest run; an earlier one is terminated."""
        handle = await self.temporal.start_workflow(
            "Rollout",
            id=names.rollout_id(self.namespace, NAME),
            task_queue="nobody-polls",
            id_conflict_policy=WorkflowIDConflictPolicy.TERMINATE_EXISTING,
        )
        self.run_id = handle.first_execution_run_id or ""

    def overtaken(self, meanwhile: Callable[[], Awaitable[object]]) -> "Rig":
        """The same rig, but others come between the fence and the first write."""
        fake = FakeTemporal(self.run_id, meanwhile=[meanwhile])
        return dataclasses.replace(self, temporal=cast(Client, fake))

    async def run(
        self,
        method: Callable[[Any], Awaitable[Result]],
        request: object,
        beats: list[object] | None = None,
        **info: Any,
    ) -> Result:
        """Run an activity as part of the run."""
        environment = ActivityEnvironment(client=self.temporal)
        environment.info = dataclasses.replace(
            environment.info,
            workflow_id=names.rollout_id(self.namespace, NAME),
            workflow_run_id=self.run_id,
            **info,
        )
        if beats is not None:
            environment.on_heartbeat = lambda *details: beats.append(details)
        return await environment.run(method, request)

    async def claim(self, name: str = NAME) -> None:
        """Claim the base name as the survey does."""
        site = traffic.Site(namespace=self.namespace, name=name, base=BASE, cluster_domain="cluster.local", run_id="r")
        await self.kube.create(SERVICES, self.namespace, traffic.render_front(site, None))

    async def weigh(self, stable: str | None, canary: str, percent: int, serving: str | None = None) -> dict[str, int]:
        request = SetWeights(
            ref=self.ref,
            base=BASE,
            policy=Policy(),
            stable=stable,
            canary=canary,
            canary_percent=percent,
            serving=serving,
        )
        return (await self.run(Promote(self.kube).set_weights, request)).weights

    async def withdraw(
        self, stable: str | None, *, drain: bool = False, seconds: int = 0, **info: Any
    ) -> list[tuple[object, ...]]:
        beats: list[Any] = []
        request = WithdrawCanary(
            ref=self.ref, base=BASE, policy=Policy(drain_seconds=seconds), stable=stable, drain=drain
        )
        await self.run(Promote(self.kube).withdraw_canary, request, beats, **info)
        return beats

    async def settle(self, revision: str) -> str:
        return (await self.settle_spec(revision)).endpoint

    async def settle_spec(self, revision: str, *, generation: int = 2, **changes: Any) -> Settled:
        record = ServingRecord(
            revision=revision,
            release=f"{BASE}-{revision}",
            generation=generation,
            identity="u/2/o/live",
            pods_digest="d",
        )
        spec = SPEC.model_copy(update=changes)
        request = Settle(
            ref=self.ref, base=BASE, policy=Policy(), record=record, spec=spec, release_name=record.release
        )
        return await self.run(Promote(self.kube).settle, request)

    async def scaler(self) -> tuple[str, int, int, str] | None:
        """Target, bounds and token target of the autoscaler; none when there is none."""
        found = await self.kube.find(HPAS, self.namespace, BASE)
        if found is None:
            return None
        spec = found["spec"]
        tokens = spec["metrics"][0]["pods"]["target"]["averageValue"]
        return spec["scaleTargetRef"]["name"], spec["minReplicas"], spec["maxReplicas"], tokens

    async def route(self) -> Object:
        return await self.kube.get(VIRTUAL_SERVICES, self.namespace, BASE)

    async def front(self) -> Object:
        return await self.kube.get(SERVICES, self.namespace, BASE)

    async def destinations(self) -> list[tuple[str, int]]:
        rule = (await self.route())["spec"]["http"][0]
        return [(entry["destination"]["host"].split(".")[0], entry["weight"]) for entry in rule["route"]]

    async def start_pod(self, revision: str, *, ready: bool = True) -> None:
        """Play scheduler and kubelet for one pod of a release."""
        release = f"{BASE}-{revision}"
        node, pod = f"{self.namespace}-node", f"{release}-5d9c7b6f4-{uuid4().hex[:5]}"
        with suppress(Conflict):
            body = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": node}}
            await self.kube.create(NODES, None, body)
        container = {"name": "engine", "image": "engine:1", "ports": [{"name": "http", "containerPort": 8000}]}
        body = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": pod, "labels": {traffic.INSTANCE_LABEL: release}},
            "spec": {"nodeName": node, "containers": [container], "automountServiceAccountToken": False},
        }
        await _insist(lambda: self.kube.create(PODS, self.namespace, body))
        status = {
            "phase": "Running",
            "podIP": "10.200.0.1",
            "podIPs": [{"ip": "10.200.0.1"}],
            "conditions": [{"type": "Ready", "status": "True" if ready else "False"}],
        }
        await self.kube.merge(PODS, self.namespace, pod, {"status": status}, sub="status")


async def _insist(write: Callable[[], Awaitable[object]]) -> None:
    """Repeat a write until the namespace has its service account and node authorization has caught up."""
    async with asyncio.timeout(60):
        while True:
            with suppress(AccessDenied, ApiUnavailable):
                await write()
                return
            await asyncio.sleep(0.05)


@pytest.fixture
async def rig(kube: Kube, temporal: Client) -> Rig:
    namespace = f"promote-{uuid4().hex[:8]}"
    await kube.create(NAMESPACES, None, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})
    made = Rig(kube, temporal, namespace)
    await made.start_run()
    await made.claim()
    return made


async def test_first_revision_gets_the_whole_route(rig: Rig) -> None:
    assert await rig.weigh(None, NEW, 100, serving=NEW) == {NEW: 100}
    route = await rig.route()
    host = f"{BASE}.{rig.namespace}.svc.cluster.local"
    target = {"host": f"{BASE}-{NEW}.{rig.namespace}.svc.cluster.local", "port": {"number": 8000}}
    assert route["spec"] == {
        "hosts": [host],
        "http": [
            {"name": "plnt", "route": [{"destination": target, "weight": 100}], "retries": {"attempts": 0}},
        ],
    }
    assert route["metadata"]["labels"][names.OWNER_LABEL] == BASE
    assert route["metadata"]["annotations"][names.SERVING_ANNOTATION] == NEW
    assert route["metadata"]["annotations"][names.RUN_ANNOTATION] == rig.run_id


async def test_canary_gets_its_share_and_the_stable_revision_stays_the_serving_one(rig: Rig) -> None:
    await rig.weigh(None, OLD, 100, serving=OLD)
    assert await rig.weigh(OLD, NEW, 5) == {OLD: 95, NEW: 5}
    assert await rig.destinations() == [(f"{BASE}-{OLD}", 95), (f"{BASE}-{NEW}", 5)]
    assert traffic.read_serving(await rig.route()) == OLD


async def test_canary_at_100_serves_only_once_that_is_said(rig: Rig) -> None:
    await rig.weigh(None, OLD, 100, serving=OLD)
    assert await rig.weigh(OLD, NEW, 100) == {OLD: 0, NEW: 100}
    assert traffic.read_serving(await rig.route()) == OLD
    assert await rig.weigh(OLD, NEW, 100, serving=NEW) == {OLD: 0, NEW: 100}
    assert traffic.read_serving(await rig.route()) == NEW


async def test_split_notes_the_stable_revision_as_serving_when_the_route_was_lost(rig: Rig) -> None:
    await rig.weigh(OLD, NEW, 20)
    assert traffic.read_serving(await rig.route()) == OLD


async def test_split_written_twice_is_the_same(rig: Rig) -> None:
    await rig.weigh(OLD, NEW, 20)
    once = await rig.route()
    assert await rig.weigh(OLD, NEW, 20) == {OLD: 80, NEW: 20}
    again = await rig.route()
    assert again["spec"] == once["spec"]


async def test_split_takes_back_what_a_person_changed(rig: Rig) -> None:
    await rig.weigh(OLD, NEW, 20)
    route = await rig.route()
    rule = {"match": [{"uri": {"prefix": "/v1"}}], "route": route["spec"]["http"][0]["route"]}
    await rig.kube.merge(VIRTUAL_SERVICES, rig.namespace, BASE, {"spec": {"http": [rule, *route["spec"]["http"]]}})
    await rig.weigh(OLD, NEW, 30)
    assert await rig.destinations() == [(f"{BASE}-{OLD}", 70), (f"{BASE}-{NEW}", 30)]
    assert len((await rig.route())["spec"]["http"]) == 1


async def test_withdrawal_leaves_the_stable_revision_alone_on_the_route(rig: Rig) -> None:
    await rig.weigh(None, OLD, 100, serving=OLD)
    await rig.weigh(OLD, NEW, 50)
    await rig.withdraw(OLD)
    assert await rig.destinations() == [(f"{BASE}-{OLD}", 100)]
    await rig.withdraw(OLD)
    assert await rig.destinations() == [(f"{BASE}-{OLD}", 100)]


async def test_withdrawal_takes_back_a_serving_note_that_was_not_read_back(rig: Rig) -> None:
    await rig.weigh(OLD, NEW, 100, serving=NEW)
    await rig.withdraw(OLD)
    assert traffic.read_serving(await rig.route()) == OLD


async def test_withdrawal_waits_for_the_drain_with_heartbeats(rig: Rig) -> None:
    await rig.weigh(OLD, NEW, 50)
    began = time.monotonic()
    beats = await rig.withdraw(OLD, drain=True, seconds=1)
    assert time.monotonic() - began >= 1
    assert beats
    began = time.monotonic()
    await rig.withdraw(OLD, drain=False, seconds=600)
    assert time.monotonic() - began < 60


async def test_withdrawal_that_is_retried_waits_only_the_rest_of_its_drain(rig: Rig) -> None:
    await rig.weigh(OLD, NEW, 50)
    await rig.withdraw(OLD)
    now = datetime.now(UTC)
    begun = Draining(started=now.timestamp() - 599)
    async with asyncio.timeout(60):
        beats = await rig.withdraw(
            OLD, drain=True, seconds=600, started_time=now, heartbeat_details=[begun.model_dump()]
        )
    assert set(beats) == {(begun,)}


async def test_withdrawal_that_finds_new_traffic_on_the_canary_drains_afresh(rig: Rig) -> None:
    await rig.weigh(OLD, NEW, 50)
    now = datetime.now(UTC)
    begun = Draining(started=now.timestamp() - 599)
    began = time.monotonic()
    beats = await rig.withdraw(OLD, drain=True, seconds=2, started_time=now, heartbeat_details=[begun.model_dump()])
    assert time.monotonic() - began >= 2
    (last,) = beats[-1]
    assert isinstance(last, Draining)
    assert last.started >= now.timestamp()


async def test_route_that_a_newer_run_wrote_is_not_deleted_by_one_that_was_overtaken_before_its_write(
    rig: Rig,
) -> None:
    await rig.weigh(None, OLD, 100, serving=OLD)
    with pytest.raises(Conflict):
        await rig.overtaken(lambda: rig.weigh(None, NEW, 100, serving=NEW)).withdraw(None)
    assert await rig.destinations() == [(f"{BASE}-{NEW}", 100)]
    await rig.withdraw(None)
    assert await rig.kube.find(VIRTUAL_SERVICES, rig.namespace, BASE) is None


async def test_autoscaler_that_a_newer_run_wrote_is_not_deleted_by_one_that_was_overtaken_before_its_write(
    rig: Rig,
) -> None:
    await rig.start_pod(OLD)
    await rig.start_pod(NEW)
    await rig.settle_spec(OLD, autoscaling=TARGET)
    with pytest.raises(Conflict):
        await rig.overtaken(lambda: rig.settle_spec(NEW, autoscaling=TARGET)).withdraw(None)
    scaler = await rig.scaler()
    assert scaler is not None
    assert scaler[0] == f"{BASE}-{NEW}"


async def test_withdrawal_of_everything_leaves_only_the_claim(rig: Rig) -> None:
    await rig.start_pod(OLD)
    await rig.weigh(None, OLD, 100, serving=OLD)
    await rig.settle(OLD)
    for _ in range(2):
        await rig.withdraw(None)
        assert await rig.kube.find(VIRTUAL_SERVICES, rig.namespace, BASE) is None
        front = await rig.front()
        assert front["spec"].get("selector") is None
        assert traffic.read_record(front) is None
        assert traffic.read_claim(front) == NAME


async def test_withdrawal_of_everything_makes_nothing_when_nothing_is_there(rig: Rig) -> None:
    await rig.kube.delete(SERVICES, rig.namespace, BASE)
    await rig.withdraw(None)
    assert await rig.kube.find(SERVICES, rig.namespace, BASE) is None


async def test_withdrawal_of_everything_leaves_alone_what_others_own(rig: Rig) -> None:
    await rig.weigh(None, OLD, 100, serving=OLD)
    await rig.kube.merge(
        VIRTUAL_SERVICES, rig.namespace, BASE, {"metadata": {"annotations": {names.CLAIM_ANNOTATION: "llama.3-1"}}}
    )
    await rig.kube.delete(SERVICES, rig.namespace, BASE)
    await rig.claim("llama.3-1")
    before = await rig.front()
    await rig.withdraw(None)
    assert await rig.destinations() == [(f"{BASE}-{OLD}", 100)]
    assert await rig.front() == before


async def test_settle_points_everything_at_the_serving_revision(rig: Rig) -> None:
    await rig.start_pod(NEW)
    await rig.weigh(OLD, NEW, 100, serving=NEW)
    endpoint = await rig.settle(NEW)
    front = await rig.front()
    record = traffic.read_record(front)
    assert endpoint == f"http://{BASE}.{rig.namespace}.svc.cluster.local:8000"
    assert front["spec"]["selector"] == {traffic.INSTANCE_LABEL: f"{BASE}-{NEW}"}
    assert [(port["port"], port["targetPort"]) for port in front["spec"]["ports"]] == [(8000, "http")]
    assert record is not None
    assert (record.revision, record.generation) == (NEW, 2)
    assert traffic.read_claim(front) == NAME
    assert await rig.destinations() == [(f"{BASE}-{NEW}", 100)]
    assert traffic.read_serving(await rig.route()) == NEW
    assert await rig.settle(NEW) == endpoint


@pytest.mark.parametrize("others", ["old pod", "unready pod", "no pod"])
async def test_settle_reports_no_endpoint_before_a_pod_is_ready(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, others: str
) -> None:
    if others == "old pod":
        await rig.start_pod(OLD)
        assert await rig.settle(OLD)
    if others == "unready pod":
        await rig.start_pod(NEW, ready=False)
    monkeypatch.setattr(promote, "ENDPOINT_SECONDS", 1.5)
    with pytest.raises(EndpointNotReady, match=f"no ready pod of release {BASE}-{NEW}"):
        await rig.settle(NEW)


async def test_settle_restores_a_lost_front_service_that_can_be_closed_again(rig: Rig) -> None:
    await rig.start_pod(NEW)
    await rig.kube.delete(SERVICES, rig.namespace, BASE)
    await rig.settle(NEW)
    assert traffic.read_selected_release(await rig.front()) == f"{BASE}-{NEW}"
    await rig.withdraw(None)
    assert traffic.read_selected_release(await rig.front()) is None


async def test_autoscaler_comes_with_a_target_moves_with_the_promotion_and_goes_with_the_target(rig: Rig) -> None:
    await rig.start_pod(OLD)
    await rig.start_pod(NEW)
    settled = await rig.settle_spec(OLD, autoscaling=TARGET)
    assert settled.autoscaling is not None
    assert settled.autoscaling.reason == "MetricsUnavailable"
    assert await rig.scaler() == (f"{BASE}-{OLD}", 1, 3, "1500")
    await rig.settle_spec(NEW, autoscaling=TARGET, replicas=Replicas(min=2, max=5))
    assert await rig.scaler() == (f"{BASE}-{NEW}", 2, 5, "1500")
    settled = await rig.settle_spec(NEW)
    assert settled.autoscaling is not None
    assert (settled.autoscaling.reason, await rig.scaler()) == ("NotRequested", None)


async def test_finished_promotion_moves_the_autoscaler_and_leaves_its_bounds(rig: Rig) -> None:
    await rig.start_pod(OLD)
    await rig.start_pod(NEW)
    await rig.settle_spec(OLD, autoscaling=TARGET)
    settled = await rig.settle_spec(NEW, generation=0, replicas=Replicas(min=7, max=2_147_483_648))
    assert settled.autoscaling is None
    assert await rig.scaler() == (f"{BASE}-{NEW}", 1, 3, "1500")


async def test_withdrawal_of_everything_takes_the_autoscaler_away(rig: Rig) -> None:
    await rig.start_pod(OLD)
    await rig.settle_spec(OLD, autoscaling=TARGET)
    await rig.withdraw(None)
    assert await rig.scaler() is None


async def test_autoscaler_of_somebody_else_stays_and_is_told(rig: Rig) -> None:
    await rig.start_pod(OLD)
    target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "other"}
    body = {"metadata": {"name": BASE}, "spec": {"scaleTargetRef": target, "maxReplicas": 9}}
    await rig.kube.create(HPAS, rig.namespace, {"apiVersion": HPAS.api, "kind": "HorizontalPodAutoscaler", **body})
    settled = await rig.settle_spec(OLD, autoscaling=TARGET)
    assert settled.autoscaling is not None
    assert (settled.autoscaling.ready, settled.autoscaling.reason) == (False, "NameTaken")
    await rig.withdraw(None)
    found = await rig.kube.get(HPAS, rig.namespace, BASE)
    assert found["spec"]["scaleTargetRef"]["name"] == "other"


async def test_traffic_stays_where_it_is_when_another_run_holds_the_name(rig: Rig) -> None:
    await rig.kube.delete(SERVICES, rig.namespace, BASE)
    await rig.claim("llama.3-1")
    for call in (rig.weigh(None, NEW, 100, serving=NEW), rig.settle(NEW), rig.withdraw(OLD)):
        with pytest.raises(NameTaken, match=r"belongs to WorkflowRun llama.3-1"):
            await call
    assert await rig.kube.find(VIRTUAL_SERVICES, rig.namespace, BASE) is None


async def test_route_of_somebody_else_is_refused_not_overwritten(rig: Rig) -> None:
    spec = {"hosts": ["x.example"], "http": [{"route": [{"destination": {"host": "x.example"}}]}]}
    body = {
        "apiVersion": VIRTUAL_SERVICES.api,
        "kind": "VirtualService",
        "metadata": {"name": BASE, "namespace": rig.namespace},
        "spec": spec,
    }
    await rig.kube.create(VIRTUAL_SERVICES, rig.namespace, body)
    with pytest.raises(NameTaken, match="belongs to no WorkflowRun"):
        await rig.weigh(None, NEW, 100, serving=NEW)
    await rig.withdraw(None)
    assert (await rig.route())["spec"] == spec


async def test_overtaken_run_changes_nothing(rig: Rig) -> None:
    await rig.weigh(None, OLD, 100, serving=OLD)
    before = await rig.route(), await rig.front()
    stale = Rig(rig.kube, rig.temporal, rig.namespace, rig.run_id)
    await rig.start_run()
    for call in (stale.weigh(OLD, NEW, 50), stale.withdraw(OLD), stale.withdraw(None), stale.settle(NEW)):
        with pytest.raises(StaleRun):
            await call
    assert (await rig.route(), await rig.front()) == before


class _Meddled(Kube):
    """An API server at which somebody else writes just before each apply."""

    async def apply(
        self, resource: Resource, body: Object, *, manager: str = names.FIELD_MANAGER, sub: str | None = None
    ) -> Object:
        meta = body["metadata"]
        note = {"metadata": {"annotations": {"example.com/seen": uuid4().hex}}}
        await self.merge(resource, meta["namespace"], meta["name"], note)
        return await super().apply(resource, body, manager=manager, sub=sub)


async def test_write_is_refused_when_the_object_changed_since_it_was_read(rig: Rig) -> None:
    await rig.weigh(None, OLD, 100, serving=OLD)
    meddled = Rig(_Meddled(rig.kube._api), rig.temporal, rig.namespace, rig.run_id)
    for call in (meddled.weigh(OLD, NEW, 50), meddled.settle(NEW)):
        with pytest.raises(Conflict):
            await call
    assert await rig.destinations() == [(f"{BASE}-{OLD}", 100)]
    assert traffic.read_selected_release(await rig.front()) is None


async def test_cluster_without_istio_is_told_what_it_lacks(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(promote, "VIRTUAL_SERVICES", Resource("networking.absent.io/v1", "virtualservices"))
    with pytest.raises(NotFound, match=r"PLNT_PROVIDER=istio needs .* install Istio and its CRDs"):
        await rig.weigh(None, NEW, 100, serving=NEW)


async def test_missing_namespace_is_not_taken_for_missing_istio(rig: Rig) -> None:
    gone = Rig(rig.kube, rig.temporal, "promote-absent")
    await gone.start_run()
    with pytest.raises(NotFound, match="namespaces"):
        await gone.weigh(None, NEW, 100, serving=NEW)


async def test_pool_carries_out_every_step_of_its_queue(
    control_plane: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The library reads KUBECONFIG when it is imported.
    monkeypatch.setattr(kube_config, "KUBE_CONFIG_DEFAULT_LOCATION", str(control_plane.kubeconfig))
    monkeypatch.setenv("KUBECONFIG", str(control_plane.kubeconfig))
    async with promote.open_pool(PoolSettings()) as activities:
        carried = {getattr(activity, "__temporal_activity_definition").name for activity in activities}
    assert carried == {step.name for step in STEPS if step.queue is Queue.PROMOTE}
