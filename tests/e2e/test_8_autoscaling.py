"""The size of a model follows its load: a real Prometheus, adapter and autoscaler on the engines' own metrics."""

import asyncio
import dataclasses
import os
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import aiohttp
import pytest

from plnt.clients.kube import DEPLOYMENTS, PODS, Object, Resource
from plnt.model import names
from plnt.model.autoscaler import TOKENS_METRIC, WAITING_METRIC
from plnt.model.status import Phase
from plnt.sandbox.cluster import CRDS, ensure, open_kube, wait_served
from plnt.sandbox.metrics.components import prometheus_url
from plnt.sandbox.metrics.prepare import find_metrics
from plnt.sandbox.metrics.servers import find_metrics_servers
from plnt.sandbox.programs import Programs
from plnt.sandbox.running import Sandbox, running_sandbox
from tests.charts.published_kinds import SCALED_OBJECT, read_kind
from tests.e2e.models import Models
from tests.e2e.place import Place, clear_place, make_place
from tests.e2e.scenario import Scenario, Traffic

pytestmark = [pytest.mark.extended, pytest.mark.timeout(600)]

HPAS = Resource("autoscaling/v2", "horizontalpodautoscalers")
SCALED_OBJECTS = Resource("keda.sh/v1alpha1", "scaledobjects")
RULES = Resource("monitoring.coreos.com/v1", "prometheusrules")
RUNTIMES = ("vllm", "sglang", "tgi", "trt-llm")
TPOT_MS, TARGET = 20, 20
"""One stream makes 50 tokens a second: more than twice the target."""
CLIENTS = 3
"""Streams to each model: they make what seven pods of the target would."""
SETTINGS = {
    "PLNT_RATE_WINDOW_SECONDS": "5",
    "PLNT_SCALE_PACE_SECONDS": "1",
    # Longer than the window of the rates: those of pods that were just promoted have to fill it first.
    "PLNT_SCALE_DOWN_SECONDS": "15",
    "PLNT_PROMETHEUS_URL": "http://prometheus.plnt.test:9090",
}


@pytest.fixture(scope="module")
async def measured(tmp_path_factory: pytest.TempPathFactory, programs: Programs) -> AsyncIterator[Sandbox]:
    """A sandbox with metrics."""
    servers = find_metrics_servers(os.environ)
    if servers is None:
        pytest.fail("Prometheus and its adapter are not built: run `plnt build --metrics` first (5 to 7 minutes, once)")
    measuring = dataclasses.replace(programs, metrics=servers)
    async with running_sandbox(tmp_path_factory.mktemp("metrics"), measuring, overrides=SETTINGS) as running:
        yield running


@pytest.fixture
async def place(request: pytest.FixtureRequest, measured: Sandbox) -> AsyncIterator[Place]:
    """A place of the test's own in the sandbox with metrics."""
    async with open_kube(measured.kubeconfig) as kube:
        made = await make_place(measured, kube, request.node.name)
        yield made
        await clear_place(made)


@pytest.fixture
def models(measured: Sandbox) -> Models:
    return Models(measured)


async def test_load_takes_a_model_of_each_runtime_from_one_pod_to_four_and_back(place: Place, models: Models) -> None:
    place.add_node("b", 12)
    runs = [Scenario(place, runtime) for runtime in RUNTIMES]
    uri = await models.uri("steady", tpotMs=TPOT_MS)
    for run in runs:
        await run.apply(uri, **scaled(run.name))
    statuses = [await run.wait_phase(Phase.READY, 1) for run in runs]
    assert {condition(status)[:2] for status in statuses} == {("True", "Autoscaling")}
    serving = [await find_target(run) for run in runs]
    assert set(serving) == await runs[0].releases()
    async with AsyncExitStack() as stack:
        loads = [await stack.enter_async_context(load(place, status["endpoint"])) for status in statuses]
        await asyncio.gather(*(wait_pods(run, release, 4) for run, release in zip(runs, serving, strict=True)))
        for run in runs:
            assert await ask(run, TOKENS_METRIC) > TARGET, run.name
            assert await ask(run, WAITING_METRIC) == 0, run.name
        serving[0] = await promote_under_load(runs[0], models)
    assert [answer.fault for traffic in loads for answer in traffic.faults] == []
    assert await find_metrics(place.kube) >= {f"pods/{TOKENS_METRIC}", f"pods/{WAITING_METRIC}"}
    await asyncio.gather(*(wait_pods(run, release, 1) for run, release in zip(runs, serving, strict=True)))
    await runs[0].kubectl("delete", "workflowrun", *RUNTIMES, "--timeout=90s")
    for resource in (HPAS, RULES):
        assert (await place.kube.list(resource, place.namespace))[0] == []


def scaled(runtime: str) -> dict[str, Any]:
    """Give the changes of a spec that let the load size the model."""
    return {
        "runtime": runtime,
        "replicas": {"min": 1, "max": 4},
        "autoscaling": {"targetTokensPerSecond": TARGET},
    }


async def promote_under_load(run: Scenario, models: Models) -> str:
    """Promote another generation while the first has four pods; gives its release, which then has as many."""
    first = await find_target(run)
    generation = await run.apply(await models.uri("newer", tpotMs=TPOT_MS), **scaled(run.name))
    await run.wait_phase(Phase.READY, generation)
    second = await find_target(run)
    assert second != first
    assert await count_ready(run, second) == 4
    return second


async def test_model_may_go_to_zero_pods_where_keda_is_served_and_only_there(place: Place, models: Models) -> None:
    scenario, uri = Scenario(place), await models.uri("steady", tpotMs=TPOT_MS)
    spec: dict[str, Any] = {"replicas": {"min": 0}, "autoscaling": {"targetTokensPerSecond": TARGET}}
    await scenario.apply(uri, **spec)
    status = await scenario.wait_phase(Phase.READY, 1)
    assert condition(status)[:2] == ("False", "ScaleToZeroUnavailable")
    assert (await place.kube.get(HPAS, place.namespace, scenario.base))["spec"]["minReplicas"] == 1
    await ensure(place.kube, CRDS, read_kind(SCALED_OBJECT))
    await wait_served(place.kube, SCALED_OBJECTS)
    await scenario.apply(uri, **spec, canary={"trafficPercent": 30})
    status = await scenario.wait_phase(Phase.READY, 2)
    assert condition(status)[:2] == ("True", "Autoscaling")
    scaled = await place.kube.get(SCALED_OBJECTS, place.namespace, scenario.base)
    assert scaled["spec"]["minReplicaCount"] == 0
    assert await place.kube.find(HPAS, place.namespace, scenario.base) is None
    (release,) = await scenario.releases()
    await place.kube.merge(DEPLOYMENTS, place.namespace, release, {"spec": {"replicas": 0}}, sub="scale")
    await scenario.apply(uri, **{**spec, "replicas": {"min": 0, "max": 3}})
    await scenario.wait_phase(Phase.READY, 3)
    assert await count_ready(scenario, release) == 0
    await scenario.apply(uri, replicas={"min": 1})
    status = await scenario.wait_phase(Phase.READY, 4)
    assert condition(status)[:2] == ("False", "NotRequested")
    assert await place.kube.find(SCALED_OBJECTS, place.namespace, scenario.base) is None
    assert await count_ready(scenario, release) == 1


def condition(status: Object) -> tuple[str, str, str]:
    """Give status, reason and message of AutoscalingReady."""
    found = next(one for one in status["conditions"] if one["type"] == "AutoscalingReady")
    return found["status"], found["reason"], found["message"]


async def find_target(run: Scenario) -> str:
    """Give the Deployment that the run's autoscaler sizes."""
    hpa = await run.place.kube.get(HPAS, run.place.namespace, run.base)
    name: str = hpa["spec"]["scaleTargetRef"]["name"]
    return name


async def count_ready(scenario: Scenario, release: str) -> int:
    """Count the ready pods of a release, those that are ending left out."""
    place = scenario.place
    deployment = await place.kube.get(DEPLOYMENTS, place.namespace, release)
    pods, _ = await place.kube.list(PODS, place.namespace, labels=f"app.kubernetes.io/instance={release}")
    alive = [pod for pod in pods if pod["metadata"].get("deletionTimestamp") is None]
    assert len(alive) >= deployment["status"].get("readyReplicas", 0)
    return int(deployment["status"].get("readyReplicas", 0))


async def wait_pods(scenario: Scenario, release: str, size: int) -> None:
    """Wait until the autoscaler has given the release this size, and all pods are ready."""
    place = scenario.place

    async def look() -> tuple[int, int, list[str]]:
        deployment = await place.kube.get(DEPLOYMENTS, place.namespace, release)
        hpa = await place.kube.get(HPAS, place.namespace, scenario.base)
        said = [f"{c['reason']}: {c['message']}" for c in hpa.get("status", {}).get("conditions", [])]
        return deployment["spec"]["replicas"], deployment["status"].get("readyReplicas", 0), said

    await scenario.wait_for(look, lambda seen: seen[:2] == (size, size), f"{size} pods of {release}", 150)


async def ask(run: Scenario, metric: str) -> float:
    """Ask Prometheus for a metric of the run's pods; gives their sum, -1 when it has none."""
    query = f'sum({metric}{{namespace="{run.place.namespace}",pod=~"{names.base_name(run.name)}-.+"}})'
    url = f"{prometheus_url(run.place.sandbox.site)}/api/v1/query"
    async with aiohttp.ClientSession() as session, session.get(url, params={"query": query}) as response:
        found = (await response.json())["data"]["result"]
    return float(found[0]["value"][1]) if found else -1.0


@asynccontextmanager
async def load(place: Place, endpoint: str) -> AsyncIterator[Traffic]:
    """Send completions of a second without a pause while the context is open."""
    traffic = Traffic(place.sandbox.site.envoy, endpoint, max_tokens=1000 // TPOT_MS)
    async with traffic.flowing(CLIENTS):
        yield traffic
