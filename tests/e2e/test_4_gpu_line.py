"""The line for GPUs."""

from plnt.model.status import Phase
from tests.e2e.models import Models
from tests.e2e.place import Place
from tests.e2e.scenario import Scenario


async def test_second_run_waits_in_line_and_starts_when_the_first_is_deleted(place: Place, models: Models) -> None:
    holder, waiter = Scenario(place, "holder"), Scenario(place, "waiter")
    await holder.apply(await models.uri("good"), resources={"gpu": 6})
    await holder.wait_phase(Phase.READY, 1)
    await waiter.apply(await models.uri("good"), resources={"gpu": 4})
    message = await _wait_in_line(waiter)
    assert "1 of 1" in message
    assert "needs 4" in message
    assert "free 2" in message
    await holder.kubectl("delete", "workflowrun", "holder", "--timeout=60s")
    await waiter.wait_phase(Phase.READY, 1)


async def test_run_fails_at_its_queue_deadline(place: Place, models: Models) -> None:
    holder, waiter = Scenario(place, "holder"), Scenario(place, "waiter")
    await holder.apply(await models.uri("good"), resources={"gpu": 8})
    await holder.wait_phase(Phase.READY, 1)
    await waiter.apply(await models.uri("good"), resources={"gpu": 4}, annotations={"plnt.work/queue-deadline": "4"})
    status = await waiter.wait_phase(Phase.FAILED, 1)
    assert status["lastError"].startswith("GpuQueueTimeout: ")
    assert len(await waiter.releases()) == 1


async def _wait_in_line(scenario: Scenario) -> str:
    def message(status: dict[str, object]) -> str:
        conditions = status.get("conditions", [])
        assert isinstance(conditions, list)
        waiting = [c["message"] for c in conditions if c["type"] == "GPUsReserved" and c["status"] == "False"]
        return str(waiting[0]) if waiting else ""

    status = await scenario.wait_status(lambda seen: " of " in message(seen), 60, "place in line")
    return message(status)
