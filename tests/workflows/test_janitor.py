"""The janitor's round, on a real Temporal server."""

import asyncio
import functools
import uuid
from collections.abc import Callable
from datetime import timedelta

import pytest
from temporalio.client import Schedule, ScheduleHandle, ScheduleOverlapPolicy, WorkflowFailureError
from temporalio.exceptions import ApplicationError

from plnt.clients.janitor_schedule import SCHEDULE, ensure_schedule
from plnt.model.housekeeping import Collected
from tests.fakes.rollouts import Rollouts
from tests.fakes.steps import JANITOR, Fault, broken
from tests.fakes.waiting import eventually

pytestmark = pytest.mark.timeout(180)


async def run_janitor(rollouts: Rollouts) -> Collected:
    found: Collected = await rollouts.client.execute_workflow(
        "Janitor", id=f"janitor-{uuid.uuid4().hex}", task_queue="plnt-control", result_type=Collected
    )
    return found


async def test_round_hands_the_live_trees_to_the_collection(rollouts: Rollouts) -> None:
    assert (await run_janitor(rollouts)).trees == ["tree-0"]
    assert rollouts.world(JANITOR).taken["collect-cache"][-1].live == ["tree-1"]


async def test_cache_is_left_alone_when_the_live_trees_are_not_known(rollouts: Rollouts) -> None:
    world = rollouts.world(JANITOR)
    before = world.calls.count("collect-cache")
    world.faults["list-live-trees"] = Fault(error=broken())
    with pytest.raises(WorkflowFailureError) as failed:
        await run_janitor(rollouts)
    world.faults.clear()
    assert isinstance(failed.value.cause, ApplicationError)
    assert "list-live-trees: DeployFailed" in str(failed.value.cause)
    assert world.calls.count("collect-cache") == before


async def test_cache_is_collected_although_a_release_cannot_be_uninstalled(rollouts: Rollouts) -> None:
    world = rollouts.world(JANITOR)
    before = world.calls.count("collect-cache")
    world.faults["sweep-releases"] = Fault(error=broken())
    with pytest.raises(WorkflowFailureError):
        await run_janitor(rollouts)
    world.faults.clear()
    assert world.calls.count("collect-cache") == before + 1


async def test_schedule_is_made_once_and_follows_the_setting(rollouts: Rollouts) -> None:
    handle = rollouts.client.get_schedule_handle(SCHEDULE)
    for seconds in (3600, 1200):
        await ensure_schedule(rollouts.client, seconds)
        await _described(handle, functools.partial(_runs_every, seconds))
    await handle.pause()
    await _described(handle, lambda schedule: schedule.state.paused)
    await ensure_schedule(rollouts.client, 1800)
    found = await _described(handle, functools.partial(_runs_every, 1800))
    assert found.policy.overlap is ScheduleOverlapPolicy.SKIP
    assert found.state.paused, "a person's pause was lifted"
    await handle.delete()


def _runs_every(seconds: float, schedule: Schedule) -> bool:
    return schedule.spec.intervals[0].every == timedelta(seconds=seconds)


async def _described(handle: ScheduleHandle, holds: Callable[[Schedule], bool]) -> Schedule:
    """Wait until the server shows the schedule as asked: it takes changes over a moment after it accepts them.

    A pause sent while an update waits there is lost: the update is taken over last, with the state it was made from.
    """
    async with asyncio.timeout(60):
        while True:
            found = (await handle.describe()).schedule
            if holds(found):
                return found
            await asyncio.sleep(0.05)


async def test_schedule_starts_a_round(rollouts: Rollouts) -> None:
    world = rollouts.world(JANITOR)
    before = world.calls.count("collect-cache")
    await ensure_schedule(rollouts.client, 3600)
    handle = rollouts.client.get_schedule_handle(SCHEDULE)
    await handle.trigger()
    await eventually(lambda: world.calls.count("collect-cache") > before)
    await handle.delete()
