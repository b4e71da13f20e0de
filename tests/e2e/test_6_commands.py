"""Every command of the ``temporal`` CLI that operators use, on real servers: what each does to a rollout."""

import json

import pytest

from plnt.clients.kube import REPLICA_SETS, VIRTUAL_SERVICES
from plnt.model.status import Phase
from tests.chaos.world import read_release_weights, read_world, wait_settled
from tests.command_line import run_command
from tests.e2e.models import Models
from tests.e2e.place import Place
from tests.e2e.scenario import Scenario
from tests.e2e.test_1_first_rollout import check_nothing_left
from tests.fakes.replica_set import make_replica_set

LONG_BAKE = {"plnt.work/bake-seconds": "600"}
LOAD_SECONDS = 5


async def run_temporal(place: Place, *arguments: str) -> str:
    """Run the temporal CLI without a workflow ID."""
    return await run_command([str(place.sandbox.programs.temporal), *arguments], place.sandbox.environment)


async def read_weights(scenario: Scenario) -> dict[str, int]:
    """Give the weights on the route, by release."""
    route = await scenario.place.kube.find(VIRTUAL_SERVICES, scenario.place.namespace, scenario.base)
    return read_release_weights(route) if route else {}


async def wait_baking(scenario: Scenario) -> None:
    """Wait until the canary carries its share."""
    await scenario.wait_for(lambda: read_weights(scenario), lambda found: 20 in found.values(), "weight 20")


async def serve_first(place: Place, models: Models) -> tuple[Scenario, str]:
    """Roll the first generation out; gives its release."""
    scenario = Scenario(place)
    await scenario.apply(await models.uri("good"))
    await scenario.wait_phase(Phase.READY, 1)
    (release,) = await scenario.releases()
    return scenario, release


async def wait_ready_by_another_run(scenario: Scenario, generation: int, run: str) -> dict[str, object]:
    """Wait until a newer run than ``run`` brought the generation to Ready."""
    return await scenario.wait_status(
        lambda seen: (
            seen.get("phase") == Phase.READY
            and seen.get("observedGeneration") == generation
            and seen.get("workflowRunId") != run
        ),
        90,
        f"Ready of generation {generation} by another run than {run}",
    )


async def read_closing(scenario: Scenario, run: str) -> str:
    """Give how a run closed."""
    described = json.loads(await scenario.temporal("workflow", "describe", "-r", run, "-o", "json"))
    return str(described["workflowExecutionInfo"]["status"]).removeprefix("WORKFLOW_EXECUTION_STATUS_")


async def wait_closing(scenario: Scenario, run: str, how: str) -> None:
    """Wait until a run closed as ``how``."""
    await scenario.wait_for(lambda: read_closing(scenario, run), lambda found: found == how, f"closing as {how}")


async def hold_deployment(scenario: Scenario, release: str) -> None:
    """Let a release's Deployment stay although it is deleted, until `let_go`."""
    await _set_finalizers(scenario, release, ["plnt.test/hold"])


async def let_go(scenario: Scenario, release: str) -> None:
    """Let a held Deployment go."""
    await _set_finalizers(scenario, release, [])


async def _set_finalizers(scenario: Scenario, release: str, finalizers: list[str]) -> None:
    body = json.dumps({"metadata": {"finalizers": finalizers}})
    await scenario.kubectl("patch", "deployment", release, "--type=merge", "-p", body)


async def test_cancel_during_the_bake_takes_the_traffic_back_and_undoes_the_canary(
    place: Place, models: Models
) -> None:
    scenario, first = await serve_first(place, models)
    generation = await scenario.apply(await models.uri("other"), annotations=LONG_BAKE)
    await wait_baking(scenario)
    await scenario.temporal("workflow", "cancel")
    status = await scenario.wait_phase(Phase.ROLLED_BACK, generation)
    assert await read_weights(scenario) == {first: 100}
    assert await scenario.releases() == {first}
    assert status["endpoint"]
    await wait_closing(scenario, str(status["workflowRunId"]), "CANCELED")


async def test_cancel_while_pods_start_leaves_nothing(place: Place, models: Models) -> None:
    scenario = Scenario(place)
    generation = await scenario.apply(await models.uri("endless", loadSeconds=600))
    (release,) = await scenario.wait_for(scenario.releases, bool, "release")
    await place.kube.create(REPLICA_SETS, place.namespace, make_replica_set(place.namespace, release, scenario.base))
    await scenario.temporal("workflow", "cancel")
    await scenario.wait_phase(Phase.ROLLED_BACK, generation)
    await check_nothing_left(scenario)
    found, _ = await place.kube.list(REPLICA_SETS, place.namespace)
    assert found == []


async def test_cancel_in_the_line_and_in_the_smoke_test_gives_everything_back(place: Place, models: Models) -> None:
    holder, waiter = Scenario(place, "holder"), Scenario(place, "waiter")
    await holder.apply(await models.uri("speechless", ttftMs=60_000), resources={"gpu": 8})
    await holder.wait_phase(Phase.SMOKE_TESTING, 1)
    await waiter.apply(await models.uri("good"))
    await waiter.wait_for(lambda: read_world(place), lambda seen: len(seen.leases) == 2, "place in the line")
    await waiter.temporal("workflow", "cancel")
    await waiter.wait_phase(Phase.ROLLED_BACK, 1)
    await holder.temporal("workflow", "cancel")
    await holder.wait_phase(Phase.ROLLED_BACK, 1)
    await wait_settled(place)
    await check_nothing_left(holder)


@pytest.mark.extended
async def test_cancel_in_promoting_undoes_before_all_traffic_moved_and_lets_it_finish_after(
    place: Place, models: Models
) -> None:
    scenario = Scenario(place)
    size = {"replicas": {"min": 2, "max": 3}}
    await scenario.apply(await models.uri("good"), **size)
    await scenario.wait_phase(Phase.READY, 1)
    (first,) = await scenario.releases()
    held = {"plnt.work/approve": "1", "plnt.work/bake-seconds": "1"}
    generation = await scenario.apply(await models.uri("other"), annotations=held, **size)
    await scenario.wait_status(lambda seen: reason(seen, "Promoted") == "AwaitingApproval", 60, "hold")
    await place.sandbox.kubectl("cordon", f"{place.namespace}-a")
    await scenario.kubectl("annotate", "--overwrite", "workflowrun", scenario.name, f"plnt.work/approve={generation}")
    status = await scenario.wait_phase(Phase.PROMOTING, generation)
    await scenario.temporal("workflow", "cancel")
    await scenario.wait_phase(Phase.ROLLED_BACK, generation)
    assert await read_weights(scenario) == {first: 100}
    assert await scenario.releases() == {first}

    await place.sandbox.kubectl("uncordon", f"{place.namespace}-a")
    await hold_deployment(scenario, first)
    await scenario.temporal("workflow", "reset", "-t", "FirstWorkflowTask", "--reason", "retry")
    await scenario.wait_for(
        lambda: read_weights(scenario), lambda found: 100 in found.values() and first not in found, "weight 100"
    )
    await scenario.temporal("workflow", "cancel")
    await let_go(scenario, first)
    status = await wait_ready_by_another_run(scenario, generation, str(status["workflowRunId"]))
    assert first not in await scenario.releases()
    await wait_closing(scenario, str(status["workflowRunId"]), "CANCELED")


async def test_reset_to_the_last_task_only_repeats_the_failure(place: Place, models: Models) -> None:
    scenario = Scenario(place)
    await scenario.apply(await models.uri("good"), resources={"gpuClass": "plnt.test/none"})
    before = await scenario.wait_phase(Phase.FAILED, 1)
    await wait_closing(scenario, str(before["workflowRunId"]), "FAILED")
    await scenario.temporal("workflow", "reset", "-t", "LastWorkflowTask", "--reason", "wrong point")
    runs = await scenario.wait_for(scenario.runs, lambda found: len(found) == 2, "second run")
    await wait_closing(scenario, runs[0], "FAILED")
    assert (await scenario.status())["lastError"] == before["lastError"]
    await check_nothing_left(scenario)


async def test_reset_of_a_running_run_takes_over_and_an_old_one_becomes_the_newest_generation(
    place: Place, models: Models
) -> None:
    scenario, _ = await serve_first(place, models)
    (oldest,) = await scenario.runs()
    uri = await models.uri("loads", loadSeconds=LOAD_SECONDS)
    generation = await scenario.apply(uri, annotations={"plnt.work/bake-seconds": "1"})
    status = await scenario.wait_phase(Phase.DEPLOYING, generation)
    await scenario.temporal("workflow", "reset", "-t", "FirstWorkflowTask", "--reason", "retry")
    await scenario.wait_status(
        lambda seen: seen["workflowRunId"] != status["workflowRunId"] and seen["phase"] == Phase.DEPLOYING, 60, "retry"
    )
    await scenario.temporal("workflow", "reset", "-r", oldest, "-t", "FirstWorkflowTask", "--reason", "retry")
    overtaken = (await scenario.status())["workflowRunId"]
    status = await wait_ready_by_another_run(scenario, generation, str(overtaken))
    runs = await scenario.runs()
    assert len(runs) == 4
    assert status["workflowRunId"] == runs[0]
    (release,) = await scenario.releases()
    assert await read_weights(scenario) == {release: 100}
    assert [await read_closing(scenario, run) for run in runs[:3]] == ["COMPLETED", "TERMINATED", "TERMINATED"]


async def test_terminated_run_is_repaired_by_the_bridge(place: Place, models: Models) -> None:
    scenario, first = await serve_first(place, models)
    generation = await scenario.apply(await models.uri("other"), annotations=LONG_BAKE)
    await wait_baking(scenario)
    lost = str((await scenario.status())["workflowRunId"])
    await scenario.temporal("workflow", "terminate", "--reason", "test")
    assert first in await scenario.releases()
    await scenario.kubectl("annotate", "--overwrite", "workflowrun", scenario.name, "plnt.work/bake-seconds=1")
    await wait_ready_by_another_run(scenario, generation, lost)
    (release,) = await scenario.releases()
    assert await read_weights(scenario) == {release: 100}


async def test_terminated_run_is_repaired_by_the_resync_alone(place: Place, models: Models) -> None:
    scenario = Scenario(place)
    generation = await scenario.apply(await models.uri("loads", loadSeconds=LOAD_SECONDS))
    lost = str((await scenario.wait_phase(Phase.DEPLOYING, generation))["workflowRunId"])
    await scenario.temporal("workflow", "terminate", "--reason", "test")
    await wait_ready_by_another_run(scenario, generation, lost)
    assert len(await scenario.releases()) == 1


async def test_bare_signals_wedge_nothing_and_a_bare_start_is_a_run_again_that_sees_changed_content(
    place: Place, models: Models
) -> None:
    scenario = Scenario(place)
    uri = await models.uri("rewritten")
    generation = await scenario.apply(uri, annotations={"plnt.work/pause": "", "plnt.work/bake-seconds": "1"})
    await scenario.wait_status(lambda seen: reason(seen, "Reconciling") == "Paused", 60, "pause")
    await scenario.temporal("workflow", "signal", "--name", "desired_changed")
    await scenario.temporal("workflow", "signal", "--name", "desired_changed", "--input", '"a word"')
    await scenario.temporal("workflow", "signal", "--name", "granted")
    await scenario.kubectl("annotate", "workflowrun", scenario.name, "plnt.work/pause-")
    status = await scenario.wait_phase(Phase.READY, generation)
    (before,) = await scenario.releases()
    await models.change("rewritten", megabytes=3)
    await scenario.temporal(
        "workflow", "signal-with-start", "--type", "Rollout", "--task-queue", "plnt-control",
        "--signal-name", "desired_changed",
    )  # fmt: skip
    await wait_ready_by_another_run(scenario, generation, str(status["workflowRunId"]))
    (after,) = await scenario.releases()
    assert after != before


async def test_batch_cancel_by_search_attribute_reaches_each_run_of_the_query(place: Place, models: Models) -> None:
    uri = await models.uri("good")
    paused = [Scenario(place, name) for name in ("one", "two")]
    for scenario in paused:
        await scenario.apply(uri, annotations={"plnt.work/pause": ""})
    other = Scenario(place, "other")
    await other.apply(uri)
    await other.wait_phase(Phase.READY, 1)
    for scenario in paused:
        await scenario.wait_status(lambda seen: reason(seen, "Reconciling") == "Paused", 60, "pause")
    query = f"PlntNamespace = '{place.namespace}' AND PlntPhase = 'Validating' AND ExecutionStatus = 'Running'"

    async def count() -> int:
        return int(json.loads(await run_temporal(place, "workflow", "count", "-q", query, "-o", "json"))["count"])

    await other.wait_for(count, lambda found: found == 2, "two runs in the query")
    await run_temporal(place, "workflow", "cancel", "-q", query, "--reason", "batch", "--yes")
    for scenario in paused:
        await scenario.wait_phase(Phase.ROLLED_BACK, 1)
    assert (await other.status())["phase"] == Phase.READY


async def test_promotion_waits_until_a_person_types_what_the_condition_says(place: Place, models: Models) -> None:
    scenario, first = await serve_first(place, models)
    annotations = {"plnt.work/approve": "1", "plnt.work/bake-seconds": "1"}
    generation = await scenario.apply(await models.uri("other"), annotations=annotations)
    status = await scenario.wait_status(lambda seen: reason(seen, "Promoted") == "AwaitingApproval", 60, "hold")
    assert (status["phase"], len(await read_weights(scenario))) == (Phase.SMOKE_TESTING, 2)
    said = next(c["message"] for c in status["conditions"] if c["type"] == "Promoted")
    typed = said.split("to promote: kubectl ", 1)[1]
    await place.sandbox.kubectl(*typed.split())
    await scenario.wait_phase(Phase.READY, generation)
    assert first not in await scenario.releases()


def reason(status: dict[str, object], kind: str) -> str:
    """Give the reason of a condition; empty when it is not there."""
    conditions = status.get("conditions", [])
    assert isinstance(conditions, list)
    return next((str(c["reason"]) for c in conditions if c["type"] == kind), "")
