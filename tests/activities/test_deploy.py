"""The deploy pool with the real helm against a real API server with controllers and scheduler, but no kubelet."""

import asyncio
import base64
import dataclasses
import gzip
import json
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import UTC, datetime, timedelta
from typing import Any, cast

import pytest
from temporalio.client import Client
from temporalio.testing import ActivityEnvironment

from activities.deploy import Deploy
from activities.releases import Releases
from plnt.clients.helm import open_helm, read_chart_versions
from plnt.clients.kube import CONFIG_MAPS, DEPLOYMENTS, PODS, REPLICA_SETS, SERVICES, VIRTUAL_SERVICES, Kube
from plnt.errors import CanaryUnhealthy, Conflict, DeployFailed, NameTaken, SpecInvalid, StaleRun
from plnt.model import messages as m
from plnt.model import names
from plnt.model.desired import Policy, Ref
from plnt.model.options import Options
from plnt.model.traffic import Site, render_route
from plnt.model.workflow_run import Model, Resources, Runtime, Spec
from plnt.resources import chart_dir
from plnt.sandbox.cluster import NAMESPACES, SERVICE_ACCOUNTS, open_kube
from plnt.sandbox.programs import Programs
from plnt.sandbox.running import Sandbox
from plnt.sandbox.waiting import wait_until
from tests.fakes.replica_set import make_replica_set
from tests.fakes.temporal_client import FakeTemporal

NFS = {"nfs": {"server": "weights.plnt.test", "path": "/"}}
REVISION = "0a1b2c3d"
POLICY = Policy(drain_seconds=0, startup_budget_seconds=60)
CHARTS = {Runtime.VLLM: chart_dir(Runtime.VLLM)}

pytestmark = pytest.mark.timeout(120)


@pytest.fixture(scope="module")
async def kube(control_plane: Sandbox) -> AsyncIterator[Kube]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("KUBECONFIG", str(control_plane.kubeconfig))
        async with open_kube(control_plane.kubeconfig) as kube:
            yield kube


@pytest.fixture
async def ref(kube: Kube) -> Ref:
    """A WorkflowRun of a namespace of its own, whose pods have their service account."""
    namespace = f"t-{uuid.uuid4().hex[:8]}"
    labels = {"pod-security.kubernetes.io/enforce": "baseline"}
    manifest = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace, "labels": labels}}
    await kube.create(NAMESPACES, None, manifest)

    async def has_account() -> bool:
        return await kube.find(SERVICE_ACCOUNTS, namespace, "default") is not None

    await wait_until(has_account, 60)
    return Ref(namespace=namespace, name="llama-3.1")


@pytest.fixture(scope="module")
async def deploy(kube: Kube, programs: Programs) -> Deploy:
    releases = Releases(kube, await open_helm(str(programs.helm)), CHARTS, NFS)
    return Deploy(kube, releases, read_chart_versions(CHARTS))


BASE = "llama-3-1"
RELEASE = f"{BASE}-{REVISION}"


async def act(
    call: Callable[..., Awaitable[Any]],
    request: Any,
    *,
    newest: str = "run-1",
    temporal: FakeTemporal | None = None,
    **info: Any,
) -> Any:
    environment = ActivityEnvironment(cast(Client, temporal or FakeTemporal(newest)))
    now = datetime.now(UTC)
    facts = {"workflow_run_id": "run-1", "scheduled_time": now, "started_time": now, **info}
    environment.info = dataclasses.replace(environment.info, **facts)
    return await environment.run(call, request)


def survey(ref: Ref, claim: bool = True) -> m.SurveyRequest:
    return m.SurveyRequest(ref=ref, base=BASE, policy=POLICY, claim=claim)


def install(ref: Ref, replicas: int = 1) -> m.InstallRelease:
    return m.InstallRelease(
        ref=ref,
        base=BASE,
        release=RELEASE,
        revision=REVISION,
        spec=Spec(
            runtime=Runtime.VLLM,
            model=Model(name="meta-llama/Llama-3.1-8B", storage_uri="s3://b/p"),
            resources=Resources(gpu=2, gpu_class="nvidia.com/h100", memory_gib=16),
        ),
        options=Options(labels={"kueue.x-k8s.io/queue-name": "gpus"}),
        policy=POLICY,
        gpu_class=m.GpuClass(resource_name="nvidia.com/h100"),
        tree=m.Tree(digest="d" * 64, bytes=1, proof="sha256"),
        replicas=replicas,
    )


def uninstall(ref: Ref, drain_seconds: int = 0) -> m.ReleaseRequest:
    return m.ReleaseRequest(ref=ref, base=BASE, release=RELEASE, drain_seconds=drain_seconds)


def size(ref: Ref, replicas: int) -> m.SizeRelease:
    return m.SizeRelease(ref=ref, base=BASE, release=RELEASE, replicas=replicas)


def wait_for(ref: Ref, replicas: int = 1) -> m.AwaitRelease:
    return m.AwaitRelease(ref=ref, base=BASE, release=RELEASE, replicas=replicas, policy=POLICY)


async def list_pods(kube: Kube, ref: Ref) -> list[dict[str, Any]]:
    pods, _ = await kube.list(PODS, ref.namespace)
    return pods


async def await_pods(kube: Kube, ref: Ref, count: int) -> list[dict[str, Any]]:
    async def are_there() -> bool:
        return len(await list_pods(kube, ref)) == count

    await wait_until(are_there, 60)
    return await list_pods(kube, ref)


def ready_status(ready: bool = True, *, since: datetime | None = None, **container: Any) -> dict[str, Any]:
    at = (since or datetime.now(UTC)).strftime("%Y-%m-%dT%H:%M:%SZ")
    truth = "True" if ready else "False"
    conditions = [
        {"type": "PodScheduled", "status": "True", "lastTransitionTime": at},
        {"type": "Ready", "status": truth, "lastTransitionTime": at},
        {"type": "ContainersReady", "status": truth, "lastTransitionTime": at},
    ]
    state = {"name": "engine", "image": "i", "imageID": "", "ready": ready, "restartCount": 0, "started": ready}
    return {"phase": "Running", "conditions": conditions, "containerStatuses": [{**state, **container}]}


async def set_status(kube: Kube, ref: Ref, pod: dict[str, Any], status: dict[str, Any]) -> None:
    """Play the kubelet."""
    await kube.merge(PODS, ref.namespace, pod["metadata"]["name"], {"status": status}, sub="status")


async def leave_pending(kube: Kube, ref: Ref, status: str, age: timedelta) -> None:
    """Leave the newest record as a helm that was killed ``age`` ago leaves it."""
    name = f"sh.helm.release.v1.{RELEASE}.v1"
    record = await kube.get(CONFIG_MAPS, ref.namespace, name)
    release = json.loads(gzip.decompress(base64.b64decode(record["data"]["release"])))
    release["info"]["status"] = status
    data = base64.b64encode(gzip.compress(json.dumps(release).encode())).decode()
    labels = {"status": status, "modifiedAt": str(int(time.time() - age.total_seconds()))}
    await kube.merge(CONFIG_MAPS, ref.namespace, name, {"metadata": {"labels": labels}, "data": {"release": data}})


async def test_survey_claims_the_name_and_a_second_run_finds_it_its_own(deploy: Deploy, kube: Kube, ref: Ref) -> None:
    await act(deploy.survey, survey(ref))
    world = await act(deploy.survey, survey(ref))
    service = await kube.get(SERVICES, ref.namespace, BASE)
    assert "selector" not in service["spec"]
    assert (world.serving, world.releases, world.weights) == (None, [], {})
    assert set(world.chart_versions) == {"vllm"}


async def test_survey_names_the_owner_when_the_name_is_taken(deploy: Deploy, ref: Ref) -> None:
    await act(deploy.survey, survey(ref))
    other = ref.model_copy(update={"name": "llama-3-1"})
    with pytest.raises(NameTaken, match=r"belongs to WorkflowRun llama-3\.1"):
        await act(deploy.survey, survey(other))


async def test_survey_of_a_run_whose_name_is_taken_sees_nothing_of_the_owner(deploy: Deploy, ref: Ref) -> None:
    await act(deploy.survey, survey(ref))
    await act(deploy.install_release, install(ref))
    other = ref.model_copy(update={"name": "llama-3-1"})
    world = await act(deploy.survey, survey(other, claim=False))
    assert (world.releases, world.serving, world.weights) == ([], None, {})
    assert [one.name for one in (await act(deploy.survey, survey(ref, claim=False))).releases] == [RELEASE]


async def test_survey_refuses_a_service_that_plnt_did_not_make(deploy: Deploy, kube: Kube, ref: Ref) -> None:
    body = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": BASE}, "spec": {"ports": [{"port": 80}]}}
    await kube.create(SERVICES, ref.namespace, body)
    with pytest.raises(NameTaken, match="a Service that plnt did not make"):
        await act(deploy.survey, survey(ref))
    await act(deploy.release_name, m.ReleaseName(ref=ref, base=BASE))
    assert await kube.find(SERVICES, ref.namespace, BASE) is not None


async def test_survey_of_an_overtaken_run_claims_nothing(deploy: Deploy, kube: Kube, ref: Ref) -> None:
    with pytest.raises(StaleRun):
        await act(deploy.survey, survey(ref), newest="run-2")
    assert await kube.find(SERVICES, ref.namespace, BASE) is None


async def test_survey_names_the_missing_cache_claim(kube: Kube, deploy: Deploy, ref: Ref) -> None:
    volume = {"persistentVolumeClaim": {"claimName": "plnt-weights"}}
    releases = dataclasses.replace(deploy._releases, cache_volume=volume)
    with pytest.raises(SpecInvalid, match=rf"{ref.namespace}/plnt-weights .* is missing: create a claim"):
        await act(Deploy(kube, releases, {}).survey, survey(ref))
    assert await kube.find(SERVICES, ref.namespace, BASE) is None


async def test_name_is_given_back_only_while_nothing_serves(deploy: Deploy, kube: Kube, ref: Ref) -> None:
    await act(deploy.survey, survey(ref))
    selector = {"app.kubernetes.io/instance": RELEASE}
    await kube.merge(SERVICES, ref.namespace, BASE, {"spec": {"selector": selector}})
    await act(deploy.release_name, m.ReleaseName(ref=ref, base=BASE))
    assert (await act(deploy.survey, survey(ref))).serving == REVISION
    await kube.merge(SERVICES, ref.namespace, BASE, {"spec": {"selector": None}})
    for _ in range(2):
        await act(deploy.release_name, m.ReleaseName(ref=ref, base=BASE))
    assert await kube.find(SERVICES, ref.namespace, BASE) is None


async def test_release_is_installed_at_its_size_and_a_second_install_changes_no_pod(
    deploy: Deploy, kube: Kube, ref: Ref
) -> None:
    await act(deploy.install_release, install(ref, 2))
    pods = await await_pods(kube, ref, 2)
    before = await kube.get(DEPLOYMENTS, ref.namespace, RELEASE)
    await act(deploy.install_release, install(ref, 2))
    after = await kube.get(DEPLOYMENTS, ref.namespace, RELEASE)
    assert before["metadata"]["generation"] == after["metadata"]["generation"]
    assert {pod["metadata"]["uid"] for pod in pods} == {p["metadata"]["uid"] for p in await list_pods(kube, ref)}
    world = await act(deploy.survey, survey(ref))
    assert [(one.name, one.revision, one.status, one.replicas) for one in world.releases] == [
        (RELEASE, REVISION, "deployed", 2)
    ]
    record = await kube.get(CONFIG_MAPS, ref.namespace, f"sh.helm.release.v1.{RELEASE}.v1")
    assert record["metadata"]["labels"][names.RUN_LABEL] == "run-1"
    assert pods[0]["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == "gpus"
    assert "run-1" not in json.dumps(after["spec"])


async def test_release_of_size_zero_never_starts_a_pod(deploy: Deploy, kube: Kube, ref: Ref) -> None:
    await act(deploy.install_release, install(ref, 0))
    assert (await act(deploy.await_release, wait_for(ref, 0))).pods == 0
    deployment = await kube.get(DEPLOYMENTS, ref.namespace, RELEASE)
    assert (deployment["spec"]["replicas"], deployment["spec"].get("paused", False)) == (0, False)
    events, _ = await kube.list(REPLICA_SETS, ref.namespace)
    assert all(found["status"].get("replicas", 0) == 0 for found in events)
    await act(deploy.size_release, size(ref, 1))
    await await_pods(kube, ref, 1)


async def read_size(kube: Kube, ref: Ref) -> int:
    size: int = (await kube.get(DEPLOYMENTS, ref.namespace, RELEASE))["spec"]["replicas"]
    return size


async def test_size_that_a_newer_run_set_is_not_overwritten_by_one_that_was_overtaken_before_its_write(
    deploy: Deploy, kube: Kube, ref: Ref
) -> None:
    await act(deploy.install_release, install(ref))
    temporal = FakeTemporal("run-1")

    async def overtake() -> None:
        temporal.run_id = "run-2"
        await kube.merge(DEPLOYMENTS, ref.namespace, RELEASE, {"spec": {"replicas": 3}}, sub="scale")

    temporal.meanwhile.append(overtake)
    with pytest.raises(StaleRun):
        await act(deploy.size_release, size(ref, 2), temporal=temporal)
    assert await read_size(kube, ref) == 3


async def test_release_is_sized_although_its_deployment_changes_before_the_write(
    deploy: Deploy, kube: Kube, ref: Ref
) -> None:
    await act(deploy.install_release, install(ref))

    async def note(text: str) -> None:
        body = {"metadata": {"annotations": {"note": text}}}
        await kube.merge(DEPLOYMENTS, ref.namespace, RELEASE, body)

    temporal = FakeTemporal("run-1", meanwhile=[lambda: note("once"), lambda: note("twice")])
    await act(deploy.size_release, size(ref, 2), temporal=temporal)
    assert (await read_size(kube, ref), temporal.meanwhile) == (2, [])


async def test_name_is_not_given_back_when_something_serves_by_the_time_of_the_write(
    deploy: Deploy, kube: Kube, ref: Ref
) -> None:
    await act(deploy.survey, survey(ref))
    selector = {"spec": {"selector": {"app.kubernetes.io/instance": RELEASE}}}
    temporal = FakeTemporal("run-1", meanwhile=[lambda: kube.merge(SERVICES, ref.namespace, BASE, selector)])
    with pytest.raises(Conflict):
        await act(deploy.release_name, m.ReleaseName(ref=ref, base=BASE), temporal=temporal)
    assert (await act(deploy.survey, survey(ref))).serving == REVISION


@pytest.mark.parametrize("status", ["pending-install", "pending-upgrade", "uninstalling"])
async def test_install_goes_through_when_an_earlier_helm_was_killed(
    deploy: Deploy, kube: Kube, ref: Ref, status: str
) -> None:
    await act(deploy.install_release, install(ref))
    await leave_pending(kube, ref, status, timedelta(minutes=5))
    await act(deploy.install_release, install(ref))
    world = await act(deploy.survey, survey(ref))
    assert [one.status for one in world.releases] == ["deployed"]


async def test_record_that_a_wrong_clock_dated_into_the_future_is_not_waited_for(
    deploy: Deploy, kube: Kube, ref: Ref, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("activities.releases.HELM_AT_WORK", timedelta(seconds=1))
    await act(deploy.install_release, install(ref))
    await leave_pending(kube, ref, "pending-install", timedelta(hours=-1))
    async with asyncio.timeout(60):
        await act(deploy.install_release, install(ref))
    world = await act(deploy.survey, survey(ref))
    assert [one.status for one in world.releases] == ["deployed"]


async def test_install_makes_a_deployment_again_that_somebody_deleted(deploy: Deploy, kube: Kube, ref: Ref) -> None:
    await act(deploy.install_release, install(ref))
    await kube.delete(DEPLOYMENTS, ref.namespace, RELEASE)
    await act(deploy.install_release, install(ref, 2))
    await await_pods(kube, ref, 2)


async def test_survey_reads_what_the_route_says(deploy: Deploy, kube: Kube, ref: Ref) -> None:
    site = Site(namespace=ref.namespace, name=ref.name, base=BASE, cluster_domain="cluster.local", run_id="run-1")
    route = render_route(site, {REVISION: 95, "11111111": 5}, serving=REVISION)
    await kube.create(VIRTUAL_SERVICES, ref.namespace, route)
    world = await act(deploy.survey, survey(ref))
    assert (world.serving, world.weights) == (REVISION, {REVISION: 95, "11111111": 5})


async def test_install_leaves_a_helm_at_work_alone(deploy: Deploy, kube: Kube, ref: Ref) -> None:
    await act(deploy.install_release, install(ref))
    await leave_pending(kube, ref, "pending-install", timedelta(0))
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(3):
            await act(deploy.install_release, install(ref))
    world = await act(deploy.survey, survey(ref))
    assert [one.status for one in world.releases] == ["pending-install"]


async def test_release_of_another_owner_is_not_touched(deploy: Deploy, kube: Kube, ref: Ref) -> None:
    await act(deploy.install_release, install(ref))
    name = f"sh.helm.release.v1.{RELEASE}.v1"
    await kube.merge(CONFIG_MAPS, ref.namespace, name, {"metadata": {"labels": {names.OWNER_LABEL: "other"}}})
    with pytest.raises(NameTaken, match="belongs to WorkflowRun base name other"):
        await act(deploy.install_release, install(ref, 2))
    await act(deploy.uninstall_release, uninstall(ref))
    assert (await kube.get(DEPLOYMENTS, ref.namespace, RELEASE))["spec"]["replicas"] == 1


async def test_overtaken_run_installs_and_uninstalls_nothing(deploy: Deploy, kube: Kube, ref: Ref) -> None:
    with pytest.raises(StaleRun):
        await act(deploy.install_release, install(ref), newest="run-2")
    await act(deploy.install_release, install(ref))
    with pytest.raises(StaleRun):
        await act(deploy.uninstall_release, uninstall(ref), newest="run-2")
    assert await kube.find(DEPLOYMENTS, ref.namespace, RELEASE) is not None


async def list_names(kube: Kube, ref: Ref) -> list[str]:
    left: list[str] = []
    for resource in (DEPLOYMENTS, REPLICA_SETS, SERVICES, PODS):
        found, _ = await kube.list(resource, ref.namespace)
        left += [one["metadata"]["name"] for one in found]
    records, _ = await kube.list(CONFIG_MAPS, ref.namespace, labels="owner=helm")
    return left + [one["metadata"]["name"] for one in records]


async def test_uninstall_leaves_nothing_and_may_run_again(deploy: Deploy, kube: Kube, ref: Ref) -> None:
    await act(deploy.install_release, install(ref, 2))
    await await_pods(kube, ref, 2)
    for _ in range(2):
        await act(deploy.uninstall_release, uninstall(ref))
        assert await list_names(kube, ref) == []


async def test_uninstall_deletes_what_lost_its_helm_record(deploy: Deploy, kube: Kube, ref: Ref) -> None:
    await act(deploy.install_release, install(ref))
    await kube.delete(CONFIG_MAPS, ref.namespace, f"sh.helm.release.v1.{RELEASE}.v1")
    assert [one.status for one in (await act(deploy.survey, survey(ref, claim=False))).releases] == ["unknown"]
    await act(deploy.uninstall_release, uninstall(ref))
    assert await list_names(kube, ref) == []


async def test_uninstall_deletes_a_replica_set_that_was_left_without_its_deployment(
    deploy: Deploy, kube: Kube, ref: Ref
) -> None:
    await act(deploy.install_release, install(ref))
    await kube.create(REPLICA_SETS, ref.namespace, make_replica_set(ref.namespace, RELEASE, BASE))
    await act(deploy.uninstall_release, uninstall(ref))
    found, _ = await kube.list(REPLICA_SETS, ref.namespace)
    assert found == []


async def test_drain_counts_from_the_first_attempt(deploy: Deploy, kube: Kube, ref: Ref) -> None:
    await act(deploy.install_release, install(ref))
    details = [{"started": time.time() - 600}]
    async with asyncio.timeout(60):
        await act(deploy.uninstall_release, uninstall(ref, drain_seconds=601), heartbeat_details=details)
    assert await list_names(kube, ref) == []


async def test_release_is_awaited_until_its_pods_are_ready(deploy: Deploy, kube: Kube, ref: Ref) -> None:
    await act(deploy.install_release, install(ref, 2))
    waiting = asyncio.create_task(act(deploy.await_release, wait_for(ref, 2)))
    first, second = await await_pods(kube, ref, 2)
    await set_status(kube, ref, first, ready_status())
    done, _ = await asyncio.wait([waiting], timeout=2.5)
    assert not done
    await set_status(kube, ref, second, ready_status())
    assert (await waiting).pods == 2


@pytest.mark.parametrize(
    ("container", "message"),
    [
        pytest.param(
            {"state": {"waiting": {"reason": "ImagePullBackOff", "message": "manifest unknown"}}},
            "ImagePullBackOff: manifest unknown",
            id="image",
        ),
        pytest.param(
            {
                "restartCount": 1,
                "state": {"waiting": {"reason": "CrashLoopBackOff"}},
                "lastState": {"terminated": {"exitCode": 137, "reason": "OOMKilled"}},
            },
            r"OOMKilled \(exit code 137\): raise spec.resources.memoryGiB",
            id="memory",
        ),
        pytest.param(
            {
                "restartCount": 2,
                "state": {"waiting": {"reason": "CrashLoopBackOff"}},
                "lastState": {"terminated": {"exitCode": 3, "reason": "Error"}},
            },
            r"CrashLoopBackOff after 2 restarts, exit code 3 \(Error\)",
            id="crash",
        ),
    ],
)
async def test_release_fails_with_the_pods_own_reason(
    deploy: Deploy, kube: Kube, ref: Ref, container: dict[str, Any], message: str
) -> None:
    await act(deploy.install_release, install(ref))
    (pod,) = await await_pods(kube, ref, 1)
    status = ready_status(False, since=datetime.now(UTC) - timedelta(seconds=40), **container)
    await set_status(kube, ref, pod, status)
    with pytest.raises(DeployFailed, match=message):
        await act(deploy.await_release, wait_for(ref))


def watch(ref: Ref, seconds: int) -> m.WatchCanary:
    return m.WatchCanary(ref=ref, base=BASE, release=RELEASE, seconds=seconds)


async def test_canary_is_called_unhealthy_at_its_crash_long_before_the_bake_ends(
    deploy: Deploy, kube: Kube, ref: Ref
) -> None:
    await act(deploy.install_release, install(ref))
    (pod,) = await await_pods(kube, ref, 1)
    await set_status(kube, ref, pod, ready_status())
    watching = asyncio.create_task(act(deploy.watch_canary, watch(ref, 600)))
    done, _ = await asyncio.wait([watching], timeout=1)
    assert not done
    ended: dict[str, Any] = {"restartCount": 1, "lastState": {"terminated": {"exitCode": 139, "reason": "Error"}}}
    await set_status(kube, ref, pod, ready_status(**ended))
    async with asyncio.timeout(60):
        with pytest.raises(CanaryUnhealthy, match=r"container engine ended with exit code 139 \(Error\)"):
            await watching


async def test_bake_counts_from_its_first_look_and_remembers_the_pods(deploy: Deploy, kube: Kube, ref: Ref) -> None:
    await act(deploy.install_release, install(ref))
    (pod,) = await await_pods(kube, ref, 1)
    await set_status(kube, ref, pod, ready_status())
    seen = {"started": time.time() - 599, "restarts": {pod["metadata"]["uid"]: 0}}
    async with asyncio.timeout(50):
        await act(deploy.watch_canary, watch(ref, 600), heartbeat_details=[seen])
    gone = {"started": time.time(), "restarts": {"another-uid": 0}}
    with pytest.raises(CanaryUnhealthy, match="is gone"):
        await act(deploy.watch_canary, watch(ref, 60), heartbeat_details=[gone])
