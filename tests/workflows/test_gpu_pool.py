"""The line for a GPU class, with real rollouts in it."""

import asyncio
from collections.abc import Iterator
from datetime import timedelta

import pytest
from temporalio.api.enums.v1 import EventType

from plnt.model import names
from plnt.model.desired import Policy
from plnt.model.line import Line
from plnt.model.options import Options
from plnt.model.status import Phase
from plnt.sandbox.waiting import wait_until
from plnt.steps import COUNT_FREE
from tests.fakes.rollouts import PATIENCE_SECONDS, Rollouts
from tests.fakes.steps import Fault, make_desired, make_spec, unavailable

pytestmark = pytest.mark.timeout(120)

POLICY = Policy(bake_seconds=0, drain_seconds=0, gpu_poll_seconds=0.2, queue_deadline_seconds=60)


def queue_up(rollouts: Rollouts, name: str, gpu_class: str, *, gpu: int = 1, deadline: int | None = None) -> None:
    """Prepare a WorkflowRun that goes to the real line."""
    world = rollouts.world(name)
    world.grants = False
    spec = make_spec(resources__gpuClass=gpu_class, resources__gpu=gpu)
    world.desired = make_desired(spec=spec, policy=POLICY, options=Options(queue_deadline_seconds=deadline))


async def read_line(rollouts: Rollouts, gpu_class: str) -> Line:
    handle = rollouts.client.get_workflow_handle(names.gpu_pool_id(gpu_class))
    line: Line = await handle.query("line", result_type=Line)
    return line


async def test_line_serves_in_order_and_tells_each_its_place(rollouts: Rollouts) -> None:
    gpu_class = "plnt.test/order"
    rollouts.fakes.free[gpu_class] = 2
    for name, gpu in (("order-1", 2), ("order-2", 2), ("order-3", 1)):
        queue_up(rollouts, name, gpu_class, gpu=gpu)
    rollouts.world("order-1").faults["run-smoke-test"] = first = Fault(hold=True)
    await rollouts.poke("order-1")
    await rollouts.wait_entered("order-1", "run-smoke-test")
    await rollouts.poke("order-2")
    await rollouts.wait_word("order-2", "place 1 of 1, needs 2, free 0")
    await rollouts.poke("order-3")
    await rollouts.wait_word("order-3", "place 2 of 2, needs 1, free 0")
    assert not rollouts.world("order-3").installed
    first.released.set()
    for name in ("order-1", "order-2", "order-3"):
        assert (await rollouts.wait(name)).last.phase is Phase.READY
    assert (await read_line(rollouts, gpu_class)).entries == []


async def test_smaller_one_does_not_overtake_the_head(rollouts: Rollouts) -> None:
    gpu_class = "plnt.test/strict"
    rollouts.fakes.free[gpu_class] = 1
    queue_up(rollouts, "strict-big", gpu_class, gpu=2)
    queue_up(rollouts, "strict-small", gpu_class, gpu=1)
    await rollouts.poke("strict-big")
    await rollouts.wait_word("strict-big", "place 1 of 1, needs 2, free 1")
    await rollouts.poke("strict-small")
    await rollouts.wait_word("strict-small", "place 2 of 2, needs 1, free 1")
    await rollouts.handle("strict-big").cancel()
    assert (await rollouts.wait("strict-big")).last.phase is Phase.ROLLED_BACK
    assert (await rollouts.wait("strict-small")).last.phase is Phase.READY


async def test_terminated_holder_makes_room(rollouts: Rollouts) -> None:
    gpu_class = "plnt.test/closed"
    rollouts.fakes.free[gpu_class] = 1
    queue_up(rollouts, "closed-1", gpu_class)
    queue_up(rollouts, "closed-2", gpu_class)
    rollouts.world("closed-1").faults["run-smoke-test"] = Fault(hold=True)
    await rollouts.poke("closed-1")
    await rollouts.wait_entered("closed-1", "run-smoke-test")
    await rollouts.poke("closed-2")
    await rollouts.wait_word("closed-2", "place 1 of 1, needs 1, free 0")
    await rollouts.handle("closed-1").terminate()
    rollouts.fakes.closed.add(names.rollout_id("default", "closed-1"))
    assert (await rollouts.wait("closed-2")).last.phase is Phase.READY


async def test_one_that_was_terminated_in_line_is_passed_over(rollouts: Rollouts) -> None:
    gpu_class = "plnt.test/ghost"
    queue_up(rollouts, "ghost", gpu_class)
    queue_up(rollouts, "living", gpu_class)
    await rollouts.poke("ghost")
    await rollouts.wait_word("ghost", "place 1 of 1, needs 1, free 0")
    await rollouts.handle("ghost").terminate()
    await rollouts.poke("living")
    rollouts.fakes.free[gpu_class] = 1
    assert (await rollouts.wait("living")).last.phase is Phase.READY


async def test_bare_signals_do_not_wedge_the_line(rollouts: Rollouts) -> None:
    gpu_class = "plnt.test/bare"
    rollouts.fakes.free[gpu_class] = 1
    line = await rollouts.client.start_workflow("GpuPool", id=names.gpu_pool_id(gpu_class), task_queue="plnt-control")
    await line.signal("join")
    await line.signal("leave")
    queue_up(rollouts, "bare", gpu_class)
    assert (await rollouts.roll_out("bare")).last.phase is Phase.READY


@pytest.fixture
def short_count() -> Iterator[None]:
    """A count that is given up after a thirtieth of its time, at most 2 s."""
    limit = COUNT_FREE.schedule_to_close
    assert limit is not None
    assert limit <= timedelta(minutes=1)
    object.__setattr__(COUNT_FREE, "schedule_to_close", limit / 30)
    yield
    object.__setattr__(COUNT_FREE, "schedule_to_close", limit)


async def wait_waiting(rollouts: Rollouts, gpu_class: str, waiting: list[str]) -> None:
    """Wait until these WorkflowRuns, and no others, are in the line."""

    async def are_waiting() -> bool:
        return [entry.join.ref.name for entry in (await read_line(rollouts, gpu_class)).waiting] == waiting

    await wait_until(are_waiting, PATIENCE_SECONDS)


@pytest.mark.usefixtures("short_count")
async def test_line_takes_joins_and_leaves_while_nobody_counts(rollouts: Rollouts) -> None:
    gpu_class = "plnt.test/silent"
    fault = rollouts.fakes.count_faults[gpu_class] = Fault(hold=True)
    queue_up(rollouts, "silent-1", gpu_class)
    queue_up(rollouts, "silent-2", gpu_class)
    await rollouts.poke("silent-1")
    await asyncio.wait_for(fault.entered.wait(), PATIENCE_SECONDS)
    await rollouts.poke("silent-2")
    await wait_waiting(rollouts, gpu_class, ["silent-1", "silent-2"])
    await rollouts.handle("silent-1").cancel()
    await wait_waiting(rollouts, gpu_class, ["silent-2"])
    rollouts.fakes.free[gpu_class] = 1
    fault.hold = False
    fault.released.set()
    assert (await rollouts.wait("silent-2")).last.phase is Phase.READY


@pytest.mark.usefixtures("short_count")
async def test_one_who_waits_is_told_why_nobody_counts(rollouts: Rollouts) -> None:
    gpu_class = "plnt.test/uncounted"
    rollouts.fakes.count_faults[gpu_class] = Fault(error=unavailable())
    queue_up(rollouts, "uncounted", gpu_class)
    await rollouts.poke("uncounted")
    await rollouts.wait_word("uncounted", f"place 1 of 1, needs 1, free unknown: SourceUnavailable: {unavailable()}")
    rollouts.fakes.count_faults.clear()
    rollouts.fakes.free[gpu_class] = 1
    assert (await rollouts.wait("uncounted")).last.phase is Phase.READY


async def read_pauses(rollouts: Rollouts, gpu_class: str) -> list[float]:
    """The line's pauses between counts so far, in seconds."""
    history = await rollouts.client.get_workflow_handle(names.gpu_pool_id(gpu_class)).fetch_history()
    return [
        event.timer_started_event_attributes.start_to_fire_timeout.ToTimedelta().total_seconds()
        for event in history.events
        if event.event_type == EventType.EVENT_TYPE_TIMER_STARTED
    ]


async def wait_pauses(rollouts: Rollouts, gpu_class: str, count: int) -> list[float]:
    async def are_there() -> bool:
        return len(await read_pauses(rollouts, gpu_class)) >= count

    await wait_until(are_there, PATIENCE_SECONDS)
    return await read_pauses(rollouts, gpu_class)


async def test_free_gpus_are_counted_less_often_while_nothing_changes(rollouts: Rollouts) -> None:
    gpu_class = "plnt.test/quiet"
    queue_up(rollouts, "quiet-1", gpu_class)
    queue_up(rollouts, "quiet-2", gpu_class)
    await rollouts.poke("quiet-1")
    await rollouts.wait_word("quiet-1", "place 1 of 1, needs 1, free 0")
    before = await wait_pauses(rollouts, gpu_class, 5)
    assert before[:5] == [0.2, 0.4, 0.8, 0.8, 0.8]
    await rollouts.poke("quiet-2")
    await rollouts.wait_word("quiet-2", "place 2 of 2, needs 1, free 0")
    after = await wait_pauses(rollouts, gpu_class, len(before) + 3)
    assert after.count(0.2) == 2
    for name in ("quiet-1", "quiet-2"):
        await rollouts.handle(name).cancel()
        await rollouts.wait(name)
