"""Edits, deletions and recreations at every moment of a rollout: the newest word wins, and the world follows."""

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass

import pytest
from temporalio.api.enums.v1 import EventType

from plnt.errors import EndpointNotReady, PermanentError, SmokeTestFailed
from plnt.model import names
from plnt.model.desired import Desired
from plnt.model.options import Options
from plnt.model.status import Phase
from tests.fakes.rollouts import Ended, Rollouts
from tests.fakes.steps import Fault, make_desired, make_spec, serving_world
from tests.workflows.test_failure_matrix import AT_100, FORWARD, OLD, PAST_RETURN, assert_only_newest_serves

pytestmark = pytest.mark.timeout(180)

STEPS = [*(step.name for step in FORWARD), AT_100]
BEFORE_100 = [step for step in STEPS if step not in PAST_RETURN]
HEARTBEATS = {step.name for step in FORWARD if step.heartbeat is not None}


def next_model(generation: int = 2, **changes: object) -> Desired:
    return make_desired(generation, spec=make_spec(model__storageUri="s3://models/next", replicas__min=2), **changes)


def replace_model(generation: int) -> Desired:
    return make_desired(generation, spec=make_spec(model__storageUri="s3://models/third", replicas__min=2))


def back_to_first(generation: int = 3) -> Desired:
    return make_desired(generation, spec=make_spec(replicas__min=2))


def deleted() -> Desired:
    return next_model(deleting=True)


def made_again() -> Desired:
    return make_desired(1, uid="uid-2", spec=make_spec(model__storageUri="s3://models/third", replicas__min=2))


WORDS: dict[str, Callable[[], Desired]] = {"back": back_to_first, "delete": deleted, "remake": made_again}


@dataclass(frozen=True)
class Case:
    """``word`` is said while ``step`` of generation 2 is under way."""

    step: str
    word: str

    @property
    def key(self) -> str:
        return f"{self.word}-{self.step}"

    @property
    def activity(self) -> str:
        return "set-weights" if self.step == AT_100 else self.step


CASES = [Case(step, word) for word in WORDS for step in (BEFORE_100 if word == "back" else STEPS)]


async def play(rollouts: Rollouts, case: Case) -> Ended | None:
    """Give how the rollout ended; none for one that ended by its deletion."""
    world = rollouts.fakes.worlds[case.key] = serving_world(case.key)
    only = {AT_100: lambda arg: arg.serving is not None, "set-weights": lambda arg: arg.serving is None}
    fault = world.faults[case.activity] = Fault(hold=True, only=only.get(case.step, lambda _: True))
    await rollouts.poke(case.key, next_model())
    await rollouts.wait_entered(case.key, case.activity)
    await rollouts.poke(case.key, WORDS[case.word]())
    first = (await rollouts.reports(case.key))[0].run_id
    await rollouts.wait_event(case.key, EventType.EVENT_TYPE_ACTIVITY_TASK_CANCEL_REQUESTED, run_id=first)
    fault.hold = False
    if case.activity not in HEARTBEATS:
        fault.released.set()
    if case.word == "delete":
        await asyncio.wait_for(rollouts.handle(case.key).result(), 60)
        return None
    return await rollouts.wait(case.key)


@pytest.fixture(scope="module")
async def played(rollouts: Rollouts) -> AsyncIterator[dict[str, "asyncio.Task[Ended | None]"]]:
    turn = asyncio.Semaphore(8)

    async def take_turn(case: Case) -> Ended | None:
        async with turn:
            return await play(rollouts, case)

    tasks = {case.key: asyncio.create_task(take_turn(case)) for case in CASES}
    yield tasks
    for task in tasks.values():
        task.cancel()
    await asyncio.gather(*tasks.values(), return_exceptions=True)


def cells(word: str) -> list[object]:
    return [pytest.param(case, id=case.step) for case in CASES if case.word == word]


Played = "dict[str, asyncio.Task[Ended | None]]"


@pytest.mark.parametrize("case", [c for c in cells("back") if AT_100 not in str(c)])
async def test_return_to_what_serves_deploys_nothing_new(case: Case, played: Played, rollouts: Rollouts) -> None:
    ended, world = await played[case.key], rollouts.world(case.key)
    assert ended is not None
    assert (ended.last.phase, ended.last.generation) == (Phase.READY, 3)
    assert OLD not in {release.removeprefix(f"{names.base_name(case.key)}-") for release in world.installed}
    assert len(world.installed) <= 1
    assert (world.weights, world.serving, world.selector) == ({OLD: 100}, OLD, OLD)
    assert [one.revision for one in world.releases.values()] == [OLD]
    assert not world.leases


@pytest.mark.parametrize("case", cells("delete"))
async def test_deletion_at_any_step_leaves_nothing(case: Case, played: Played, rollouts: Rollouts) -> None:
    await played[case.key]
    world = rollouts.world(case.key)
    assert (world.releases, world.weights, world.selector, world.serving) == ({}, {}, None, None)
    assert (world.claimed, world.desired) == (False, None)
    assert not world.leases
    assert world.calls[-1] == "drop-finalizer"


@pytest.mark.parametrize("case", cells("remake"))
async def test_object_made_again_at_once_is_rolled_out_by_itself(
    case: Case, played: Played, rollouts: Rollouts
) -> None:
    ended, world = await played[case.key], rollouts.world(case.key)
    assert ended is not None
    assert (ended.last.phase, ended.last.uid) == (Phase.READY, "uid-2")
    assert_only_newest_serves(world)
    assert not world.leases


async def test_promoted_revision_that_lost_its_pods_gives_way_to_the_next_generation(rollouts: Rollouts) -> None:
    world = rollouts.fakes.worlds["podless"] = serving_world("podless")
    # One that is not retried: the retries of one try take minutes.
    gone = type(EndpointNotReady.__name__, (PermanentError,), {})("no ready pod is in the EndpointSlice")
    world.faults["settle"] = Fault(error=gone, only=lambda arg: arg.record.generation == 2)
    await rollouts.poke("podless", next_model())
    await rollouts.wait_report("podless", lambda report: report.last_error.startswith("EndpointNotReady"))
    await rollouts.poke("podless", replace_model(3))
    ended = await rollouts.wait("podless")
    assert (ended.last.phase, ended.last.generation) == (Phase.READY, 3)
    assert_only_newest_serves(world)


async def test_ten_edits_within_a_second_end_at_the_last(rollouts: Rollouts) -> None:
    world = rollouts.fakes.worlds["ten"] = serving_world("ten")
    for number in range(2, 12):
        spec = make_spec(model__storageUri=f"s3://models/edit-{number}", replicas__min=2)
        await rollouts.poke("ten", make_desired(number, spec=spec))
    ended = await rollouts.wait("ten")
    assert (ended.last.phase, ended.last.generation) == (Phase.READY, 11)
    assert_only_newest_serves(world)
    generations = [one.generation for one in await rollouts.reports("ten")]
    assert generations == sorted(generations)


async def test_edit_during_the_undo_waits_for_it_and_is_rolled_out(rollouts: Rollouts) -> None:
    world = rollouts.fakes.worlds["undo-edit"] = serving_world("undo-edit")
    world.faults["run-smoke-test"] = Fault(error=SmokeTestFailed("over budget"), times=1)
    fault = world.faults["uninstall-release"] = Fault(hold=True)
    await rollouts.poke("undo-edit", next_model())
    await rollouts.wait_entered("undo-edit", "uninstall-release")
    for generation in (3, 4):
        spec = make_spec(model__storageUri=f"s3://models/edit-{generation}", replicas__min=2)
        await rollouts.poke("undo-edit", make_desired(generation, spec=spec))
    assert world.calls.count("pull-weights") == 1
    fault.released.set()
    ended = await rollouts.wait("undo-edit")
    assert (ended.last.phase, ended.last.generation) == (Phase.READY, 4)
    assert_only_newest_serves(world)


async def test_return_to_the_first_after_promotion_is_a_canary_from_cached_weights(rollouts: Rollouts) -> None:
    world = rollouts.fakes.worlds["later"] = serving_world("later")
    await rollouts.roll_out("later", next_model())
    ended = await rollouts.roll_out("later", back_to_first())
    assert (ended.last.phase, world.calls.count("watch-canary")) == (Phase.READY, 2)
    assert_only_newest_serves(world)


@pytest.mark.parametrize(
    ("change", "options"),
    [
        pytest.param({"replicas__min": 3}, {}, id="replicas"),
        pytest.param({"autoscaling__targetTokensPerSecond": 900}, {}, id="autoscaling"),
        pytest.param({"canary__trafficPercent": 70}, {}, id="canary"),
        pytest.param({}, {"bake_seconds": 7}, id="annotation"),
    ],
)
async def test_change_beside_the_pods_resolves_and_deploys_nothing(
    rollouts: Rollouts, change: dict[str, object], options: dict[str, object]
) -> None:
    name = f"beside-{'-'.join([*change, *options]).replace('__', '-').replace('_', '-').lower()}"
    world = rollouts.fakes.worlds[name] = serving_world(name)
    # The source's content moved meanwhile, which is none of this change's business.
    world.tree = "tree-2"
    spec = make_spec(**{"replicas__min": 2, **change})
    ended = await rollouts.roll_out(name, make_desired(2, spec=spec, options=Options.model_validate(options)))
    assert ended.last.phase is Phase.READY
    assert not world.installed
    assert "resolve-source" not in world.calls
    assert [one.revision for one in world.releases.values()] == [OLD]


@pytest.mark.parametrize(
    "change",
    [
        pytest.param({"model__name": "org/renamed"}, id="name of the model"),
        pytest.param({"model__quantization": "fp8"}, id="quantization"),
        pytest.param({"resources__memoryGiB": 16}, id="memory"),
    ],
)
async def test_change_of_the_pods_is_a_canary(rollouts: Rollouts, change: dict[str, object]) -> None:
    name = f"pods-{next(iter(change)).replace('__', '-').lower()}"
    world = rollouts.fakes.worlds[name] = serving_world(name)
    ended = await rollouts.roll_out(name, make_desired(2, spec=make_spec(**{"replicas__min": 2, **change})))
    assert (ended.last.phase, world.calls.count("watch-canary")) == (Phase.READY, 1)
    assert_only_newest_serves(world)
