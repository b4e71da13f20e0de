"""A second generation beside one that serves: bad ones leave no trace, good ones take over without a failure."""

import time

from plnt.clients.kube import VIRTUAL_SERVICES
from plnt.model import names
from plnt.model.status import Phase
from plnt.sandbox.kubelet.control import Fault, FaultKind
from tests.e2e.models import Models
from tests.e2e.place import Place
from tests.e2e.scenario import Scenario, Traffic

CRASH_WINDOW_SECONDS = 15.0
"""Longest time between a canary's crash and weight 0 in Envoy."""


async def _serve_first(place: Place, models: Models) -> tuple[Scenario, Traffic, str]:
    scenario = Scenario(place)
    await scenario.apply(await models.uri("good"))
    status = await scenario.wait_phase(Phase.READY, 1)
    (release,) = await scenario.releases()
    return scenario, Traffic(place.sandbox.site.envoy, status["endpoint"]), release


async def test_slow_second_generation_is_rolled_back_with_its_numbers_and_no_client_notices(
    place: Place, models: Models
) -> None:
    scenario, traffic, first = await _serve_first(place, models)
    async with traffic.flowing():
        generation = await scenario.apply(await models.uri("slow", ttftMs=700))
        status = await scenario.wait_phase(Phase.ROLLED_BACK, generation)
    assert status["lastError"].startswith("SmokeTestFailed: ")
    assert "400 ms" in status["lastError"]
    measured = float(status["lastError"].split("TTFT p50 ")[1].split(" ms")[0])
    assert 700 <= measured < 1500
    assert await scenario.releases() == {first}
    assert traffic.faults == []
    assert set(traffic.by_release()) == {first}
    assert status["endpoint"] == traffic.endpoint


async def test_canary_that_crashes_during_the_bake_is_withdrawn_within_seconds(place: Place, models: Models) -> None:
    scenario, traffic, first = await _serve_first(place, models)
    async with traffic.flowing():
        generation = await scenario.apply(await models.uri("other"), annotations={"plnt.work/bake-seconds": "60"})
        await _wait_weight(scenario, 20)
        canary = (await scenario.releases() - {first}).pop()
        await _wait_answers(scenario, traffic, canary, 3)
        place.add_fault(
            Fault(fault=FaultKind.CRASH, matchLabels={names.REVISION_LABEL: names.revision_of(scenario.base, canary)})
        )
        crashed = time.monotonic()
        status = await scenario.wait_phase(Phase.ROLLED_BACK, generation)
        told = time.monotonic()
        await _wait_answers(scenario, traffic, first, 20, since=told)
    assert status["lastError"].startswith("CanaryUnhealthy: ")
    assert canary not in traffic.by_release(since=told)
    assert [fault for fault in traffic.faults if fault.sent > crashed + CRASH_WINDOW_SECONDS] == []
    assert [fault for fault in traffic.faults if fault.ended < crashed] == []
    assert await scenario.releases() == {first}
    route = await place.kube.get(VIRTUAL_SERVICES, place.namespace, scenario.base)
    assert len(route["spec"]["http"][0]["route"]) == 1


async def test_good_second_generation_takes_its_share_then_everything_without_a_failed_request(
    place: Place, models: Models
) -> None:
    scenario, traffic, first = await _serve_first(place, models)
    async with traffic.flowing():
        generation = await scenario.apply(await models.uri("other"), annotations={"plnt.work/bake-seconds": "8"})
        await _wait_weight(scenario, 20)
        baking = time.monotonic()
        await _wait_phase_left(scenario, Phase.SMOKE_TESTING)
        baked = time.monotonic()
        await scenario.wait_phase(Phase.READY, generation)
        ready = time.monotonic()
        second = (await scenario.releases()).pop()
        await _wait_answers(scenario, traffic, second, 50, since=ready)
    assert await scenario.releases() == {second}
    assert second != first
    assert traffic.faults == []
    shares = traffic.by_release(baking + 1, baked - 1)
    assert 0.08 < shares[second] / shares.total() < 0.36
    assert set(traffic.by_release(since=ready)) == {second}
    logs = await scenario.kubectl("logs", "--selector", f"app.kubernetes.io/instance={second}", "--tail=-1")
    assert logs.count("model loaded") == 1


async def test_replicas_and_canary_settings_change_in_place_without_a_new_pod(place: Place, models: Models) -> None:
    scenario, _, first = await _serve_first(place, models)
    before = await scenario.kubectl("get", "pods", "-o", "name")
    generation = await scenario.apply(
        await models.uri("good"), replicas={"min": 2, "max": 3}, canary={"trafficPercent": 50}
    )
    await scenario.wait_phase(Phase.READY, generation)
    after = await scenario.kubectl("get", "pods", "-o", "name")
    assert await scenario.releases() == {first}
    assert set(before.split()) <= set(after.split())
    assert len(after.split()) == 2


async def test_kubectl_wait_follows_the_second_generation(place: Place, models: Models) -> None:
    scenario, _, first = await _serve_first(place, models)
    generation = await scenario.apply(await models.uri("other"), annotations={"plnt.work/bake-seconds": "0"})
    await scenario.kubectl("wait", "--for=condition=Ready", f"workflowrun/{scenario.name}", "--timeout=60s")
    status = await scenario.status()
    assert (status["observedGeneration"], status["phase"]) == (generation, "Ready")
    assert first not in await scenario.releases()


async def _wait_weight(scenario: Scenario, percent: int) -> None:
    async def weights() -> list[int]:
        route = await scenario.place.kube.find(VIRTUAL_SERVICES, scenario.place.namespace, scenario.base)
        return [target.get("weight", 100) for target in route["spec"]["http"][0]["route"]] if route else []

    await scenario.wait_for(weights, lambda found: percent in found, f"weight {percent}")


async def _wait_phase_left(scenario: Scenario, phase: Phase) -> None:
    await scenario.wait_status(lambda status: status.get("phase") != phase, 60, f"end of {phase}")


async def _wait_answers(scenario: Scenario, traffic: Traffic, release: str, count: int, since: float = 0.0) -> None:
    async def answered() -> int:
        return traffic.by_release(since)[release]

    await scenario.wait_for(answered, lambda found: found >= count, f"{count} answers of {release}")
