"""Holds by annotation: ``plnt.work/pause`` and ``plnt.work/approve``."""

import pytest
from temporalio.client import WorkflowExecutionStatus

from plnt.errors import CanaryUnhealthy
from plnt.model.desired import Desired, Policy
from plnt.model.options import Options
from plnt.model.status import Condition, ConditionType, Phase, PhaseReport
from tests.fakes.rollouts import Rollouts
from tests.fakes.steps import Fault, make_desired, make_spec, serving_world

pytestmark = pytest.mark.timeout(120)

NEXT_MODEL = make_spec(model__storageUri="s3://models/next")
OLD = "0ddba11e"
POLICY = Policy(bake_seconds=0, drain_seconds=0, gpu_poll_seconds=0.2)
BEFORE = {
    "pull-weights": Phase.VALIDATING,
    "join-line": Phase.PULLING_WEIGHTS,
    "run-smoke-test": Phase.DEPLOYING,
    "size-release": Phase.SMOKE_TESTING,
}
"""First step of each phase that can be held, and the phase before it."""


def second(generation: int = 2, *, policy: Policy = POLICY, **options: object) -> Desired:
    spec = make_spec(model__storageUri="s3://models/next", replicas__min=2)
    return make_desired(generation, spec=spec, options=Options.model_validate(options), policy=policy)


def find(report: PhaseReport, kind: ConditionType) -> Condition:
    return next(one for one in report.conditions if one.type is kind)


async def wait_reason(rollouts: Rollouts, name: str, kind: ConditionType, reason: str) -> PhaseReport:
    return await rollouts.wait_report(name, lambda one: find(one, kind).reason == reason)


@pytest.mark.parametrize("step", BEFORE)
async def test_paused_run_holds_before_the_next_phase_until_the_annotation_goes(rollouts: Rollouts, step: str) -> None:
    name = f"paused-{step}"
    world = rollouts.fakes.worlds[name] = serving_world(name)
    # The last step of the phase before is held, so that the pause comes while that phase is under way.
    last = {"pull-weights": "resolve-source", "join-line": "pull-weights", "run-smoke-test": "await-release"}
    held = last.get(step, "watch-canary")
    fault = world.faults[held] = Fault(hold=True)
    await rollouts.poke(name, second())
    await rollouts.wait_entered(name, held)
    await rollouts.poke(name, second(pause=True))
    await rollouts.wait_observed(name, second(pause=True).options_digest)
    fault.released.set()
    report = await wait_reason(rollouts, name, ConditionType.RECONCILING, "Paused")
    assert report.phase is BEFORE[step]
    assert step not in world.calls
    assert "plnt.work/pause" in find(report, ConditionType.RECONCILING).message
    ended = await rollouts.roll_out(name, second())
    assert ended.last.phase is Phase.READY
    assert find(ended.last, ConditionType.RECONCILING).reason == "Settled"
    assert len({one.run_id for one in await rollouts.reports(name)}) == 1


async def test_paused_run_can_be_cancelled_and_is_undone(rollouts: Rollouts) -> None:
    world = rollouts.world("pause-cancel")
    await rollouts.poke("pause-cancel", make_desired(1, options=Options(pause=True)))
    await wait_reason(rollouts, "pause-cancel", ConditionType.RECONCILING, "Paused")
    await rollouts.handle("pause-cancel").cancel()
    ended = await rollouts.wait("pause-cancel")
    assert (ended.last.phase, ended.status) == (Phase.ROLLED_BACK, WorkflowExecutionStatus.CANCELED)
    assert not world.claimed


async def test_change_in_place_waits_too_while_paused(rollouts: Rollouts) -> None:
    world = rollouts.fakes.worlds["pause-place"] = serving_world("pause-place", pods=1)
    spec = make_spec(replicas__min=3)
    await rollouts.poke("pause-place", make_desired(2, spec=spec, options=Options(pause=True)))
    await wait_reason(rollouts, "pause-place", ConditionType.RECONCILING, "Paused")
    assert "size-release" not in world.calls
    ended = await rollouts.roll_out("pause-place", make_desired(2, spec=spec))
    assert ended.last.phase is Phase.READY
    assert [one.replicas for one in world.releases.values()] == [3]


async def test_promotion_waits_for_the_approval_of_its_generation_and_watches_the_canary(rollouts: Rollouts) -> None:
    world = rollouts.fakes.worlds["approve"] = serving_world("approve")
    world.faults["watch-canary"] = Fault(hold=True, only=lambda arg: arg.seconds > 0)
    await rollouts.poke("approve", second(approve="1"))
    report = await wait_reason(rollouts, "approve", ConditionType.PROMOTED, "AwaitingApproval")
    said = find(report, ConditionType.PROMOTED).message
    assert said.endswith("kubectl -n default annotate --overwrite workflowrun approve plnt.work/approve=2")
    await rollouts.wait_entered("approve", "watch-canary")
    assert world.weights == {OLD: 80, next(iter(world.ever_weighted)): 20}
    ended = await rollouts.roll_out("approve", second(approve="2"))
    assert (ended.last.phase, ended.last.generation) == (Phase.READY, 2)
    assert world.calls.count("watch-canary") == 2


async def test_approved_run_goes_on_when_the_canarys_watch_ends_at_that_very_moment(rollouts: Rollouts) -> None:
    world = rollouts.fakes.worlds["at-once"] = serving_world("at-once")
    world.faults["watch-canary"] = Fault(hold=True, done_when_cancelled=True, only=lambda arg: arg.seconds > 0)
    await rollouts.poke("at-once", second(approve="1"))
    await rollouts.wait_entered("at-once", "watch-canary")
    ended = await rollouts.roll_out("at-once", second(approve="2"))
    assert ended.last.phase is Phase.READY
    assert world.calls.count("watch-canary") == 2


async def test_approval_given_beforehand_is_not_waited_for(rollouts: Rollouts) -> None:
    rollouts.fakes.worlds["approved"] = serving_world("approved")
    ended = await rollouts.roll_out("approved", second(approve="2"))
    assert ended.last.phase is Phase.READY
    reasons = [find(one, ConditionType.PROMOTED).reason for one in await rollouts.reports("approved")]
    assert "AwaitingApproval" not in reasons


async def test_generation_that_nobody_approves_is_rolled_back_at_the_deadline(rollouts: Rollouts) -> None:
    world = rollouts.fakes.worlds["late-approval"] = serving_world("late-approval")
    world.faults["watch-canary"] = Fault(hold=True, only=lambda arg: arg.seconds > 0)
    policy = POLICY.model_copy(update={"approve_deadline_seconds": 1})
    ended = await rollouts.roll_out("late-approval", second(approve="", policy=policy))
    assert (ended.last.phase, ended.reason) == (Phase.ROLLED_BACK, "ApprovalTimeout")
    assert "generation 2" in ended.last.last_error
    assert find(ended.last, ConditionType.PROMOTED).reason == "ApprovalTimeout"
    assert (world.weights, len(world.releases)) == ({OLD: 100}, 1)


async def test_canary_that_breaks_while_it_waits_for_approval_is_rolled_back(rollouts: Rollouts) -> None:
    world = rollouts.fakes.worlds["breaks"] = serving_world("breaks")
    world.faults["watch-canary"] = Fault(error=CanaryUnhealthy("a pod restarted"), only=lambda arg: arg.seconds > 0)
    ended = await rollouts.roll_out("breaks", second(approve="no"))
    assert (ended.last.phase, ended.reason) == (Phase.ROLLED_BACK, "CanaryUnhealthy")
    assert (world.weights, len(world.releases)) == ({OLD: 100}, 1)


async def test_newer_generation_takes_over_from_one_that_waits_for_approval(rollouts: Rollouts) -> None:
    world = rollouts.fakes.worlds["overtaken"] = serving_world("overtaken")
    world.faults["watch-canary"] = Fault(hold=True, only=lambda arg: arg.seconds > 0)
    await rollouts.poke("overtaken", second(approve=""))
    await wait_reason(rollouts, "overtaken", ConditionType.PROMOTED, "AwaitingApproval")
    newer = make_spec(model__storageUri="s3://models/newer", replicas__min=2)
    ended = await rollouts.roll_out("overtaken", make_desired(3, spec=newer))
    assert (ended.last.phase, ended.last.generation) == (Phase.READY, 3)
    (release,) = world.releases.values()
    assert world.weights == {release.revision: 100}


async def test_replicas_changed_while_it_waits_ask_for_the_approval_of_the_newer_generation(rollouts: Rollouts) -> None:
    await rollouts.poke("renewed", make_desired(1, options=Options(approve="")))
    await wait_reason(rollouts, "renewed", ConditionType.PROMOTED, "AwaitingApproval")
    spec = make_spec(replicas__min=2)
    await rollouts.poke("renewed", make_desired(2, spec=spec, options=Options(approve="1")))
    await rollouts.wait_report(
        "renewed", lambda one: find(one, ConditionType.PROMOTED).message.endswith("plnt.work/approve=2")
    )
    ended = await rollouts.roll_out("renewed", make_desired(2, spec=spec, options=Options(approve="2")))
    assert (ended.last.phase, ended.last.generation) == (Phase.READY, 2)
    assert len(rollouts.world("renewed").installed) == 1
