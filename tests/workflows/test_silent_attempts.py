"""Every step, silent in its first attempt: the worker is gone before it did anything, or before it could say so."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from datetime import timedelta

import pytest

from plnt import steps
from plnt.errors import CanaryUnhealthy
from plnt.model import names
from plnt.model.status import Phase
from tests.fakes.rollouts import Ended, Rollouts
from tests.fakes.steps import Fault, SmallWorld, make_desired, make_spec, serving_world
from tests.workflows.test_failure_matrix import AT_100, FORWARD, OLD, WITHDRAW, assert_only_newest_serves

pytestmark = pytest.mark.timeout(180)

MODES = {"worker-gone": Fault(hang=1), "run-twice": Fault(lose=1)}
FORWARD_NAMES = ["load-desired", *(step.name for step in FORWARD), AT_100]
QUICK = timedelta(seconds=2)
"""Time limits in these tests: long enough for an attempt on a busy machine, since another one follows."""


@dataclass(frozen=True)
class Case:
    """One cell; ``undo``: the step is part of an undo, else of a rollout that reaches Ready."""

    step: str
    mode: str
    undo: bool = False

    @property
    def key(self) -> str:
        return f"silent-{self.step}-{self.mode}{'-undo' if self.undo else ''}"

    @property
    def activity(self) -> str:
        return "set-weights" if self.step == AT_100 else self.step

    def make_fault(self) -> Fault:
        only = {AT_100: lambda arg: arg.serving is not None, "set-weights": lambda arg: arg.serving is None}
        mode = MODES[self.mode]
        return Fault(hang=mode.hang, lose=mode.lose, only=only.get(self.step, lambda _: True))


CASES = [
    *(Case(step, mode) for step in FORWARD_NAMES for mode in MODES),
    *(Case(step, mode, undo=True) for step in WITHDRAW for mode in MODES),
]


@pytest.fixture(scope="module", autouse=True)
def quick_limits() -> Iterator[None]:
    """Give every step the time limits of these tests."""
    fields = ("start_to_close", "heartbeat")
    before = {step.name: [getattr(step, field) for field in fields] for step in steps.STEPS}
    for step in steps.STEPS:
        object.__setattr__(step, "start_to_close", QUICK)
        object.__setattr__(step, "heartbeat", QUICK if step.heartbeat else None)
    yield
    for step in steps.STEPS:
        for field, value in zip(fields, before[step.name], strict=True):
            object.__setattr__(step, field, value)


async def play(rollouts: Rollouts, case: Case) -> Ended:
    world = rollouts.fakes.worlds[case.key] = serving_world(case.key)
    world.desired = make_desired(2, spec=make_spec(model__storageUri="s3://models/next", replicas__min=2))
    if case.undo:
        world.faults["watch-canary"] = Fault(error=CanaryUnhealthy("a pod restarted"))
    world.faults[case.activity] = case.make_fault()
    return await rollouts.roll_out(case.key)


@pytest.fixture(scope="module")
async def played(rollouts: Rollouts, quick_limits: None) -> AsyncIterator[dict[str, "asyncio.Task[Ended]"]]:
    turn = asyncio.Semaphore(8)

    async def take_turn(case: Case) -> Ended:
        async with turn:
            return await play(rollouts, case)

    tasks = {case.key: asyncio.create_task(take_turn(case)) for case in CASES}
    yield tasks
    for task in tasks.values():
        task.cancel()
    await asyncio.gather(*tasks.values(), return_exceptions=True)


def assert_was_silent_once(world: SmallWorld, case: Case) -> None:
    fault = world.faults[case.activity]
    assert (fault.hang, fault.lose) == (0, 0), "the step never ran"
    assert not world.leases


@pytest.mark.parametrize("case", [pytest.param(c, id=f"{c.step}-{c.mode}") for c in CASES if not c.undo])
async def test_step_is_done_by_its_next_attempt_and_nothing_is_undone(
    case: Case, played: "dict[str, asyncio.Task[Ended]]", rollouts: Rollouts
) -> None:
    ended, world = await played[case.key], rollouts.world(case.key)
    assert (ended.last.phase, ended.last.last_error) == (Phase.READY, "")
    assert "withdraw-canary" not in world.calls
    assert len(set(world.installed)) == 1
    assert_only_newest_serves(world)
    assert_was_silent_once(world, case)


@pytest.mark.parametrize("case", [pytest.param(c, id=f"{c.step}-{c.mode}") for c in CASES if c.undo])
async def test_undo_is_done_by_its_next_attempt_and_leaves_only_what_served(
    case: Case, played: "dict[str, asyncio.Task[Ended]]", rollouts: Rollouts
) -> None:
    ended, world = await played[case.key], rollouts.world(case.key)
    assert (ended.last.phase, ended.last.last_error) == (Phase.ROLLED_BACK, "CanaryUnhealthy: a pod restarted")
    last = len(world.calls) - 1 - world.calls[::-1].index("watch-canary")
    assert list(dict.fromkeys(world.calls[last + 1 :])) == WITHDRAW
    assert (set(world.releases), world.weights) == (
        {names.release_name(names.base_name(case.key), OLD)},
        {OLD: 100},
    )
    assert_was_silent_once(world, case)
