"""Edits and deletions at awkward moments, as people do them with kubectl."""

import asyncio
import time
from functools import partial

import pytest

from plnt.clients.kube import WORKFLOW_RUNS
from plnt.model import names
from plnt.model.status import Phase
from plnt.sandbox.cluster import NAMESPACES
from tests.chaos.world import wait_settled
from tests.e2e.models import Models
from tests.e2e.place import Place
from tests.e2e.scenario import Scenario, Traffic
from tests.e2e.test_1_first_rollout import check_nothing_left
from tests.e2e.test_6_commands import (
    LONG_BAKE,
    hold_deployment,
    let_go,
    read_weights,
    reason,
    serve_first,
    wait_baking,
)

pytestmark = pytest.mark.extended

SHORT_BAKE = {"plnt.work/bake-seconds": "2"}
BACK_SECONDS = 60.0
"""Longest time back to what serves, on a slow machine: far less than the bake that is cut short."""


async def test_ten_edits_within_a_second_end_at_the_last_with_one_release(place: Place, models: Models) -> None:
    scenario, _ = await serve_first(place, models)
    uris = [await models.uri("good"), await models.uri("other")]
    generation = 1
    for number in range(10):
        body = {"spec": {"model": {"storageUri": uris[(number + 1) % 2]}, "resources": {"memoryGiB": 10 + number}}}
        changed = await place.kube.merge(WORKFLOW_RUNS, place.namespace, scenario.name, body)
        generation = changed["metadata"]["generation"]
    assert generation == 11
    await scenario.wait_phase(Phase.READY, generation)
    await wait_settled(place)
    (release,) = await scenario.releases()
    deployment = await scenario.kubectl("get", "deployment", release, "-o=jsonpath={..resources.requests.memory}")
    assert deployment == "19Gi"


async def test_return_to_what_serves_is_ready_within_seconds_and_restarts_no_pod(place: Place, models: Models) -> None:
    scenario, first = await serve_first(place, models)
    pods = set((await scenario.kubectl("get", "pods", "-o", "name")).split())
    await scenario.apply(await models.uri("other"), annotations=LONG_BAKE)
    await wait_baking(scenario)
    generation = await scenario.apply(await models.uri("good"), annotations=LONG_BAKE)
    began = time.monotonic()
    await scenario.wait_phase(Phase.READY, generation)
    assert time.monotonic() - began < BACK_SECONDS
    assert await read_weights(scenario) == {first: 100}
    assert await scenario.releases() == {first}
    assert set((await scenario.kubectl("get", "pods", "-o", "name")).split()) == pods


async def test_changed_runtime_takes_over_under_the_same_name_without_a_failed_request(
    place: Place, models: Models
) -> None:
    scenario, first = await serve_first(place, models)
    endpoint = (await scenario.status())["endpoint"]
    traffic = Traffic(place.sandbox.site.envoy, endpoint)
    async with traffic.flowing():
        generation = await scenario.apply(await models.uri("good"), runtime="sglang", annotations=SHORT_BAKE)
        status = await scenario.wait_phase(Phase.READY, generation)
        (second,) = await scenario.releases()
        since = time.monotonic()
        await scenario.wait_for(
            partial(count_answers, traffic, second, since), lambda found: found >= 10, "answers of the new runtime"
        )
    image = await scenario.kubectl("get", "deployment", second, "-o=jsonpath={..containers[0].image}")
    assert "sglang" in image
    assert (status["endpoint"], traffic.faults) == (endpoint, [])
    assert set(traffic.by_release(since)) == {second}
    assert await read_weights(scenario) == {second: 100}
    assert second != first


async def count_answers(traffic: Traffic, release: str, since: float) -> int:
    """Count the answers of a release to what was sent since then."""
    return traffic.by_release(since)[release]


async def test_edit_during_the_undo_waits_for_it_and_is_then_rolled_out(place: Place, models: Models) -> None:
    scenario, first = await serve_first(place, models)
    await scenario.apply(await models.uri("slow", ttftMs=700))
    found = await scenario.wait_for(scenario.releases, lambda seen: len(seen) == 2, "canary")
    (canary,) = found - {first}
    await hold_deployment(scenario, canary)
    await scenario.wait_status(lambda seen: reason(seen, "Reconciling") == "Undoing", 60, "undo")
    generation = await scenario.apply(await models.uri("other"), annotations=SHORT_BAKE)
    await scenario.wait_phase(Phase.PENDING, generation)
    assert await scenario.releases() <= {first, canary}
    await let_go(scenario, canary)
    await scenario.wait_phase(Phase.READY, generation)
    await wait_settled(place)
    (release,) = await scenario.releases()
    assert release not in {first, canary}


async def test_run_deleted_in_its_bake_and_made_again_at_once_is_rolled_out_anew(place: Place, models: Models) -> None:
    scenario, first = await serve_first(place, models)
    await scenario.apply(await models.uri("other"), annotations=LONG_BAKE)
    await wait_baking(scenario)
    uid = (await scenario.read())["metadata"]["uid"]
    await scenario.kubectl("delete", "workflowrun", scenario.name, "--timeout=60s")
    await scenario.apply(await models.uri("good"))
    status = await scenario.wait_phase(Phase.READY, 1)
    assert (await scenario.read())["metadata"]["uid"] != uid
    assert status["endpoint"]
    await wait_settled(place)
    (release,) = await scenario.releases()
    assert release == first


async def test_deleted_namespace_takes_its_runs_along_and_is_gone_itself(place: Place, models: Models) -> None:
    serving, working = Scenario(place, "serving"), Scenario(place, "working")
    await serving.apply(await models.uri("good"))
    await serving.wait_phase(Phase.READY, 1)
    await working.apply(await models.uri("endless", loadSeconds=600))
    await working.wait_for(working.releases, lambda found: len(found) == 2, "release that starts")
    await place.sandbox.kubectl("delete", "namespace", place.namespace, "--timeout=90s")
    assert await place.kube.find(NAMESPACES, None, place.namespace) is None
    client = await place.sandbox.connect_temporal()

    async def count_open() -> int:
        found = 0
        for name in ("serving", "working"):
            for workflow_id in (names.rollout_id(place.namespace, name), names.reporter_id(place.namespace, name)):
                query = f"WorkflowId = '{workflow_id}' AND ExecutionStatus = 'Running'"
                found += (await client.count_workflows(query)).count
        return found

    await serving.wait_for(count_open, lambda found: found == 0, "end of every workflow")


async def test_run_whose_finalizer_was_removed_by_hand_leaves_nothing_all_the_same(
    place: Place, models: Models
) -> None:
    scenario, _ = await serve_first(place, models)
    await place.kube.merge(WORKFLOW_RUNS, place.namespace, scenario.name, {"metadata": {"finalizers": None}})
    await scenario.kubectl("delete", "workflowrun", scenario.name, "--timeout=30s")
    await scenario.wait_for(scenario.releases, lambda found: not found, "end of the release")
    await wait_settled(place)
    await check_nothing_left(scenario)


async def test_skipped_teardown_lets_the_object_go_at_once_and_leaves_what_serves(place: Place, models: Models) -> None:
    scenario, first = await serve_first(place, models)
    await scenario.kubectl("annotate", "workflowrun", scenario.name, "plnt.work/skip-teardown=true")
    await scenario.kubectl("delete", "workflowrun", scenario.name, "--timeout=30s")
    await asyncio.sleep(1)
    assert await scenario.releases() == {first}
