"""A first rollout, as the newcomer sees it."""

import json
from pathlib import Path

import aiohttp
import yaml

from plnt.clients.kube import DEPLOYMENTS, SERVICES, VIRTUAL_SERVICES
from plnt.model.status import Phase
from tests.e2e.place import Place
from tests.e2e.scenario import FULL_PASS, Scenario, Traffic
from tests.e2e.settled import Settled

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "llama-3.1-70b-instruct.yaml"


async def test_example_reaches_ready_phase_by_phase_and_answers_through_the_mesh(place: Place) -> None:
    example = yaml.safe_load(EXAMPLE.read_text())
    example["metadata"]["namespace"] = place.namespace
    path = place.sandbox.state.root / "example.json"
    path.write_text(json.dumps(example))
    scenario = Scenario(place, example["metadata"]["name"])
    async with scenario.recorded():
        await scenario.kubectl("apply", "-f", str(path))
        await scenario.kubectl("wait", "--for=condition=Ready", f"workflowrun/{scenario.name}", "--timeout=90s")
        status = await scenario.wait_phase(Phase.READY, 1)
    assert scenario.phases(1) == FULL_PASS
    assert status["workflowRunId"] == (await scenario.runs())[0]
    assert status["endpoint"] == f"http://llama-3-1-70b-instruct.{place.namespace}.svc.cluster.local:8000"
    assert "lastError" not in status or status["lastError"] == ""
    traffic = Traffic(place.sandbox.site.envoy, status["endpoint"], example["spec"]["model"]["name"])
    async with aiohttp.ClientSession() as session:
        assert (await traffic.send(session)).fault == ""
    table = (await scenario.kubectl("get", "workflowrun")).splitlines()
    assert table[0].split() == ["NAME", "RUNTIME", "GPU", "PHASE", "ENDPOINT", "AGE"]
    assert table[1].split()[:5] == [scenario.name, "vllm", "nvidia.com/h100", "Ready", status["endpoint"]]
    await _check_what_people_read_in_temporal(scenario)
    await scenario.kubectl("delete", "workflowrun", scenario.name, "--timeout=60s")
    await check_nothing_left(scenario)


async def _check_what_people_read_in_temporal(scenario: Scenario) -> None:
    metadata = await scenario.temporal("workflow", "metadata")
    assert "Ready" in metadata
    assert "TTFT" in metadata
    events = json.loads(await scenario.temporal("workflow", "show", "-o", "json"))["events"]
    scheduled = [event for event in events if event["eventType"] == "EVENT_TYPE_ACTIVITY_TASK_SCHEDULED"]
    assert scheduled
    assert all("summary" in event.get("userMetadata", {}) for event in scheduled)
    assert len(events) <= 150


async def test_settled_run_had_one_attempt(settled: Settled) -> None:
    assert [len(runs) for runs in settled.runs] == [1, 1]


async def check_nothing_left(scenario: Scenario) -> None:
    """Assert that no release, route, Service or Deployment of the run is left."""
    assert await scenario.releases() == set()
    for resource in (DEPLOYMENTS, VIRTUAL_SERVICES, SERVICES):
        items, _ = await scenario.place.kube.list(resource, scenario.place.namespace)
        assert [item["metadata"]["name"] for item in items] == [], resource.plural
