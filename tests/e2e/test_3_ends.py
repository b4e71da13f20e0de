"""Deletion, cancel and retry by the commands that people type."""

from plnt.clients.kube import WORKFLOW_RUNS
from plnt.model.status import Phase
from tests.e2e.models import Models
from tests.e2e.place import Place
from tests.e2e.scenario import Scenario
from tests.e2e.test_1_first_rollout import check_nothing_left


async def test_deleted_run_leaves_nothing_and_its_name_can_be_used_again_at_once(place: Place, models: Models) -> None:
    scenario = Scenario(place, "dotted.name-1.0")
    await scenario.apply(await models.uri("good"))
    first = await scenario.wait_phase(Phase.READY, 1)
    await scenario.kubectl("delete", "workflowrun", scenario.name, "--timeout=60s")
    assert await place.kube.find(WORKFLOW_RUNS, place.namespace, scenario.name) is None
    await check_nothing_left(scenario)
    await scenario.apply(await models.uri("good"))
    second = await scenario.wait_phase(Phase.READY, 1)
    assert second["workflowRunId"] != first["workflowRunId"]


async def test_reset_of_a_rolled_back_run_is_a_retry_that_reaches_ready(place: Place, models: Models) -> None:
    scenario = Scenario(place)
    uri = await models.uri("mended", ttftMs=900)
    generation = await scenario.apply(uri)
    failed = await scenario.wait_phase(Phase.ROLLED_BACK, generation)
    await models.change("mended", ttftMs=20)
    await scenario.temporal("workflow", "reset", "-t", "FirstWorkflowTask", "--reason", "retry")
    status = await scenario.wait_status(
        lambda seen: seen["phase"] == Phase.READY and seen["workflowRunId"] != failed["workflowRunId"], 60, "retry"
    )
    assert status["workflowRunId"] == (await scenario.runs())[0]
    assert status.get("lastError", "") == ""
