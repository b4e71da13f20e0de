"""Every forward step, failed for good, failed once, cancelled and superseded: how the run and its world end."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace

import pytest
from temporalio.api.enums.v1 import EventType
from temporalio.client import WorkflowExecutionStatus

from plnt import steps
from plnt.errors import DeployFailed, SourceUnavailable
from plnt.model import names
from plnt.model.status import Phase
from tests.fakes.rollouts import Ended, Rollouts
from tests.fakes.steps import NAMESPACE, Fault, SmallWorld, make_desired, make_spec, serving_world

pytestmark = pytest.mark.timeout(120)

OLD = "0ddba11e"
HOUSEKEEPING = {"load-desired"}
FORWARD = [step for step in steps.STEPS if step.phase is not None and step.name not in HOUSEKEEPING]
AT_100 = "set-weights-100"
PAST_RETURN = {"settle", "uninstall-release"}
NAMES = [*(step.name for step in FORWARD), AT_100]

WITHDRAW = ["withdraw-canary", "uninstall-release", "leave-line"]
UNDONE: dict[str, list[str]] = {
    "survey": ["release-name"],
    "resolve-class": [],
    "resolve-source": [],
    "pull-weights": [],
    "join-line": ["leave-line"],
    "install-release": ["uninstall-release", "leave-line"],
    "await-release": ["uninstall-release", "leave-line"],
    "run-smoke-test": ["uninstall-release", "leave-line"],
    "set-weights": WITHDRAW,
    "watch-canary": WITHDRAW,
    "size-release": WITHDRAW,
    AT_100: WITHDRAW,
}
"""Undo steps in order, by the step that failed. A new step in the table fails here until it has its row."""
UNDO_STEPS = {"withdraw-canary", "uninstall-release", "leave-line", "release-name"}
MODES = ["fails-for-good", "fails-once", "cancelled", "superseded"]


@dataclass
class Case:
    """One cell of the matrix."""

    step: str
    mode: str

    @property
    def key(self) -> str:
        return f"{self.step}-{self.mode}"

    @property
    def activity(self) -> str:
        return "set-weights" if self.step == AT_100 else self.step

    @property
    def heartbeats(self) -> bool:
        return next(step for step in FORWARD if step.name == self.activity).heartbeat is not None


CASES = [Case(step, mode) for step in NAMES for mode in MODES]


async def play(rollouts: Rollouts, case: Case) -> Ended:
    """Roll generation 2 out over generation 1 with the case's fault, and wait for the end."""
    world = rollouts.fakes.worlds[case.key] = serving_world(case.key)
    spec = make_spec(model__storageUri="s3://models/next", replicas__min=2)
    world.desired = make_desired(2, spec=spec)
    fault = world.faults[case.activity] = make_fault(case)
    await rollouts.poke(case.key)
    if case.mode in {"cancelled", "superseded"}:
        await rollouts.wait_entered(case.key, case.activity)
        await interrupt(rollouts, case, world)
        if case.step not in PAST_RETURN:
            first = (await rollouts.reports(case.key))[0].run_id
            await rollouts.wait_event(case.key, EventType.EVENT_TYPE_ACTIVITY_TASK_CANCEL_REQUESTED, run_id=first)
        fault.hold = False
        if not case.heartbeats or case.step in PAST_RETURN:
            fault.released.set()
    return await rollouts.wait(case.key)


def make_fault(case: Case) -> Fault:
    """The fault of one cell; past the point of no return even a failure for good must be overcome, so it ends."""
    at_100 = Fault(only=lambda arg: arg.serving is not None)
    fault = at_100 if case.step == AT_100 else Fault()
    if case.step == "set-weights":
        fault = Fault(only=lambda arg: arg.serving is None)
    match case.mode:
        case "fails-for-good":
            return replace(fault, error=DeployFailed("it stays broken"), times=1 if case.step in PAST_RETURN else 99)
        case "fails-once":
            return replace(fault, error=SourceUnavailable("it passes"), times=1)
        case _:
            return replace(fault, hold=True)


async def interrupt(rollouts: Rollouts, case: Case, world: SmallWorld) -> None:
    """Do what a person does meanwhile."""
    if case.mode == "cancelled":
        await rollouts.handle(case.key).cancel()
    else:
        newer = make_spec(model__storageUri="s3://models/newer", replicas__min=2)
        await rollouts.poke(case.key, make_desired(3, spec=newer))


@pytest.fixture(scope="module")
async def played(rollouts: Rollouts) -> AsyncIterator[dict[str, "asyncio.Task[Ended]"]]:
    """All cells at once, a few at a time: most of a rollout's time is waiting."""
    turn = asyncio.Semaphore(8)

    async def take_turn(case: Case) -> Ended:
        async with turn:
            return await play(rollouts, case)

    tasks = {case.key: asyncio.create_task(take_turn(case)) for case in CASES}
    yield tasks
    for task in tasks.values():
        task.cancel()


def undone_after(world: SmallWorld, step: str) -> list[str]:
    """The undo steps that ran after the last call of ``step``."""
    last = len(world.calls) - 1 - world.calls[::-1].index(step)
    return [call for call in world.calls[last + 1 :] if call in UNDO_STEPS]


def assert_only_old_serves(world: SmallWorld, key: str) -> None:
    assert set(world.releases) == {names.release_name(names.base_name(key), OLD)}
    assert world.weights == {OLD: 100}
    assert (world.serving, world.selector) == (OLD, OLD)


def assert_only_newest_serves(world: SmallWorld) -> None:
    (release,) = world.releases.values()
    assert release.revision != OLD
    assert release.replicas == 2
    assert world.weights == {release.revision: 100}
    assert world.serving == world.selector == release.revision


def cells(mode: str, *, past: bool = False) -> list[object]:
    chosen = [case for case in CASES if case.mode == mode and (case.step in PAST_RETURN) == past]
    return [pytest.param(case, id=case.step) for case in chosen]


@pytest.mark.parametrize("case", cells("fails-for-good"))
async def test_failed_step_is_undone_and_the_old_revision_serves(
    case: Case, played: "dict[str, asyncio.Task[Ended]]", rollouts: Rollouts
) -> None:
    ended, world = await played[case.key], rollouts.world(case.key)
    rolled_back = any(step != "leave-line" for step in UNDONE[case.step]) and case.step != "survey"
    assert ended.last.phase is (Phase.ROLLED_BACK if rolled_back else Phase.FAILED)
    assert ended.last.last_error == "DeployFailed: it stays broken"
    assert (ended.status, ended.reason) == (WorkflowExecutionStatus.FAILED, "DeployFailed")
    assert undone_after(world, case.activity) == UNDONE[case.step]
    assert_only_old_serves(world, case.key)
    if case.step != "survey":
        assert ended.last.endpoint == names.endpoint_url(names.base_name(case.key), NAMESPACE)


@pytest.mark.parametrize("case", [*cells("fails-once"), *cells("fails-once", past=True)])
async def test_step_that_fails_once_is_retried_to_ready(
    case: Case, played: "dict[str, asyncio.Task[Ended]]", rollouts: Rollouts
) -> None:
    ended, world = await played[case.key], rollouts.world(case.key)
    assert (ended.last.phase, ended.last.last_error) == (Phase.READY, "")
    assert ended.status is WorkflowExecutionStatus.COMPLETED
    assert_only_newest_serves(world)


@pytest.mark.parametrize("case", cells("fails-for-good", past=True))
async def test_failure_past_weight_100_is_shown_as_stalled_and_overcome(
    case: Case, played: "dict[str, asyncio.Task[Ended]]", rollouts: Rollouts
) -> None:
    ended, world = await played[case.key], rollouts.world(case.key)
    stalled = [
        one
        for one in await rollouts.reports(case.key)
        if any(c.type == "Stalled" and c.status == "True" for c in one.conditions)
    ]
    assert [(one.phase, one.last_error) for one in stalled] == [(Phase.PROMOTING, "DeployFailed: it stays broken")]
    assert (ended.last.phase, ended.last.last_error) == (Phase.READY, "")
    assert_only_newest_serves(world)


@pytest.mark.parametrize("case", [case for case in cells("cancelled") if AT_100 not in str(case)])
async def test_cancel_undoes_the_attempt_and_closes_canceled(
    case: Case, played: "dict[str, asyncio.Task[Ended]]", rollouts: Rollouts
) -> None:
    ended, world = await played[case.key], rollouts.world(case.key)
    assert (ended.last.phase, ended.last.last_error) == (Phase.ROLLED_BACK, "")
    assert ended.status is WorkflowExecutionStatus.CANCELED
    expected = [] if case.step == "survey" else UNDONE[case.step]
    assert undone_after(world, case.activity) in (expected, UNDONE[case.step])
    assert_only_old_serves(world, case.key)


@pytest.mark.parametrize("case", [*cells("cancelled", past=True), pytest.param(Case(AT_100, "cancelled"), id=AT_100)])
async def test_cancel_past_weight_100_lets_retirement_finish(
    case: Case, played: "dict[str, asyncio.Task[Ended]]", rollouts: Rollouts
) -> None:
    ended, world = await played[case.key], rollouts.world(case.key)
    assert (ended.last.phase, ended.status) == (Phase.READY, WorkflowExecutionStatus.CANCELED)
    assert "withdraw-canary" not in world.calls
    assert_only_newest_serves(world)


@pytest.mark.parametrize("case", [*cells("superseded"), *cells("superseded", past=True)])
async def test_newer_generation_takes_over_after_the_undo(
    case: Case, played: "dict[str, asyncio.Task[Ended]]", rollouts: Rollouts
) -> None:
    ended, world = await played[case.key], rollouts.world(case.key)
    assert (ended.last.phase, ended.last.generation) == (Phase.READY, 3)
    assert ended.status is WorkflowExecutionStatus.COMPLETED
    assert_only_newest_serves(world)
    generations = [one.generation for one in await rollouts.reports(case.key)]
    assert generations == sorted(generations)
    passed = [one for one in await rollouts.reports(case.key) if one.generation == 2 and one.phase is Phase.READY]
    assert len(passed) == (1 if case.step in PAST_RETURN | {AT_100} else 0)
