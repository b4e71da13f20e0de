"""The rollout on a real Temporal server with step doubles: what a user sees, what the world looks like after."""

from typing import Any

import pytest
from temporalio.client import WorkflowExecutionStatus, WorkflowFailureError
from temporalio.worker import Worker

from plnt.errors import AccessDenied, NameTaken, Rejected, SmokeTestFailed, SourceUnavailable
from plnt.model import names
from plnt.model.desired import Policy
from plnt.model.options import Options
from plnt.model.status import ConditionType, Phase, PhaseReport
from tests.fakes.rollouts import LOG_QUEUE, Rollouts
from tests.fakes.steps import Fault, Installed, make_desired, make_spec, serving_world
from workflows.__main__ import sandbox
from workflows.rollout import Rollout

pytestmark = pytest.mark.timeout(120)

ALL_PHASES = ["Validating", "PullingWeights", "Deploying", "SmokeTesting", "Promoting", "Ready"]
NEXT_MODEL = make_spec(model__storageUri="s3://models/next")
OLD = "0ddba11e"
BOUNDED = Policy(bake_seconds=0, drain_seconds=0, gpu_poll_seconds=0.2, undo_deadline_seconds=2)


def condition(report: PhaseReport, kind: ConditionType) -> tuple[str, str, str]:
    found = next(one for one in report.conditions if one.type is kind)
    return (found.status.value, found.reason, found.message)


async def read_memo(rollouts: Rollouts, name: str, kind: type[Any]) -> Any:
    key = "report" if kind is PhaseReport else "identity"
    return await (await rollouts.handle(name).describe()).memo_value(key, type_hint=kind)


async def test_first_rollout_goes_through_every_phase_to_ready(rollouts: Rollouts) -> None:
    ended = await rollouts.roll_out("first")
    world = rollouts.world("first")
    assert (ended.status, ended.phases) == (WorkflowExecutionStatus.COMPLETED, ALL_PHASES)
    assert ended.last.endpoint == "http://first.default.svc.cluster.local:8000"
    (release,) = world.releases.values()
    assert world.weights == {release.revision: 100}
    assert world.selector == world.serving == release.revision
    assert "watch-canary" not in world.calls


async def test_run_with_the_longest_name_is_rolled_out_under_a_short_one(rollouts: Rollouts) -> None:
    name = "long" + ".x" * 124 + "y"
    assert len(name) == 253
    ended = await rollouts.roll_out(name)
    (request,) = rollouts.world(name).taken["install-release"]
    assert (ended.last.phase, request.ref.name) == (Phase.READY, name)
    assert len(request.release) <= 53


async def test_first_rollout_stays_small_and_tells_what_it_does(rollouts: Rollouts) -> None:
    ended = await rollouts.roll_out("small")
    assert await rollouts.count_events("small") <= 150
    assert all(await rollouts.summaries("small"))
    assert condition(ended.last, ConditionType.READY)[:2] == ("True", "Serving")
    assert condition(ended.last, ConditionType.SMOKE_PASSED)[2] == (
        "3 prompts, TTFT p50 180.0 ms (budget 250 ms), TPOT p50 22.0 ms"
    )
    assert {one.type for one in ended.last.conditions} == set(ConditionType) - {ConditionType.RUNTIME_DEPRECATED}
    details = (await rollouts.handle("small").query("__temporal_workflow_metadata")).current_details
    assert "TTFT p50 180.0 ms" in details
    assert "**Ready**" in details


async def test_run_notes_identity_phase_and_last_report_for_the_bridge(rollouts: Rollouts) -> None:
    desired = make_desired(7)
    ended = await rollouts.roll_out("noted", desired)
    assert await read_memo(rollouts, "noted", str) == desired.identity
    assert await read_memo(rollouts, "noted", PhaseReport) == ended.last
    found = (await rollouts.handle("noted").describe()).search_attributes
    assert (found["PlntPhase"], found["PlntGeneration"]) == (["Ready"], [7])


async def test_second_generation_is_baked_then_replaces_the_first(rollouts: Rollouts) -> None:
    world = rollouts.fakes.worlds["second"] = serving_world("second", pods=10)
    ended = await rollouts.roll_out("second", make_desired(2, spec=NEXT_MODEL))
    assert ended.phases == ALL_PHASES
    shares = [(arg.canary_percent, arg.stable, arg.serving) for arg in world.taken["set-weights"]]
    canary = world.serving
    assert shares == [(20, OLD, None), (100, None, canary)]
    assert [arg.replicas for arg in world.taken["await-release"]] == [2, 10]
    assert world.taken["join-line"][0].pods == 10
    assert world.calls.index("settle") < world.calls.index("uninstall-release")
    (release,) = world.releases.values()
    assert (release.revision, release.replicas) == (canary, 1)


async def test_full_traffic_canary_is_sized_as_the_stable_one_before_its_bake(rollouts: Rollouts) -> None:
    world = rollouts.fakes.worlds["full"] = serving_world("full", pods=3)
    spec = make_spec(model__storageUri="s3://models/next", canary__trafficPercent=100, replicas__min=3)
    ended = await rollouts.roll_out("full", make_desired(2, spec=spec))
    assert ended.last.phase is Phase.READY
    assert world.taken["install-release"][0].replicas == 3
    assert world.taken["set-weights"][0].serving is None


async def test_over_budget_canary_ends_rolled_back_with_its_numbers(rollouts: Rollouts) -> None:
    world = rollouts.fakes.worlds["slow"] = serving_world("slow")
    world.faults["run-smoke-test"] = Fault(error=SmokeTestFailed("TTFT p50 400 ms exceeds ttftBudgetMs 250"))
    ended = await rollouts.roll_out("slow", make_desired(2, spec=NEXT_MODEL))
    assert ended.last.phase is Phase.ROLLED_BACK
    assert ended.last.last_error == "SmokeTestFailed: TTFT p50 400 ms exceeds ttftBudgetMs 250"
    assert condition(ended.last, ConditionType.SMOKE_PASSED)[:2] == ("False", "SmokeTestFailed")
    assert ended.last.endpoint == "http://slow.default.svc.cluster.local:8000"
    undoing = [
        one for one in await rollouts.reports("slow") if condition(one, ConditionType.RECONCILING)[1] == "Undoing"
    ]
    assert [one.phase for one in undoing] == [Phase.SMOKE_TESTING]
    assert not world.ever_weighted


async def test_failed_first_rollout_leaves_nothing(rollouts: Rollouts) -> None:
    world = rollouts.world("nothing")
    world.faults["settle"] = Fault()
    world.faults["set-weights"] = Fault(error=Rejected("an admission webhook refused the VirtualService"))
    ended = await rollouts.roll_out("nothing")
    assert (ended.last.phase, ended.last.endpoint) == (Phase.ROLLED_BACK, None)
    assert (world.releases, world.weights, world.claimed) == ({}, {}, False)
    assert world.calls[-4:] == ["withdraw-canary", "uninstall-release", "leave-line", "release-name"]


async def test_faulty_spec_is_refused_by_name_before_anything_is_claimed(rollouts: Rollouts) -> None:
    world = rollouts.world("faulty")
    spec = make_spec(canary__smokeTest__prompts=5000)
    ended = await rollouts.roll_out("faulty", make_desired(spec=spec, faults=["annotation plnt.work/x is unknown"]))
    assert (ended.last.phase, ended.reason) == (Phase.FAILED, "SpecInvalid")
    assert "plnt.work/x" in ended.last.last_error
    assert "spec.canary.smokeTest.prompts" in ended.last.last_error
    assert condition(ended.last, ConditionType.ACCEPTED)[:2] == ("False", "SpecInvalid")
    assert not world.claimed


async def test_taken_name_is_refused_in_validating(rollouts: Rollouts) -> None:
    rollouts.world("taken").faults["survey"] = Fault(error=NameTaken("Service taken belongs to another"))
    ended = await rollouts.roll_out("taken")
    assert (ended.last.phase, ended.phases, ended.reason) == (Phase.FAILED, ["Validating", "Failed"], "NameTaken")


async def test_failed_undo_is_told_with_both_causes(rollouts: Rollouts) -> None:
    world = rollouts.fakes.worlds["stuck"] = serving_world("stuck")
    world.faults["watch-canary"] = Fault(error=SmokeTestFailed("the canary restarted"))
    world.faults["withdraw-canary"] = Fault(error=AccessDenied("virtualservices are forbidden"))
    ended = await rollouts.roll_out("stuck", make_desired(2, spec=NEXT_MODEL, policy=BOUNDED))
    assert (ended.last.phase, ended.reason) == (Phase.FAILED, "RollbackIncomplete")
    assert ended.last.last_error.startswith("RollbackIncomplete: withdraw-canary failed: AccessDenied")
    assert "the canary restarted" in ended.last.last_error
    assert len(world.releases) == 2, "a release with traffic must not go"


async def test_undo_that_is_refused_is_tried_on_until_somebody_repaired_it(rollouts: Rollouts) -> None:
    world = rollouts.fakes.worlds["repaired"] = serving_world("repaired")
    world.faults["watch-canary"] = Fault(error=SmokeTestFailed("the canary restarted"))
    world.faults["withdraw-canary"] = Fault(error=AccessDenied("virtualservices are forbidden"), times=2)
    ended = await rollouts.roll_out("repaired", make_desired(2, spec=NEXT_MODEL))
    assert (ended.last.phase, ended.last.last_error) == (Phase.ROLLED_BACK, "SmokeTestFailed: the canary restarted")
    assert (world.weights, len(world.releases)) == ({OLD: 100}, 1)
    stalled = [r for r in await rollouts.reports("repaired") if condition(r, ConditionType.STALLED)[0] == "True"]
    assert stalled[0].last_error == "AccessDenied: virtualservices are forbidden"


async def test_changed_replicas_are_applied_in_place(rollouts: Rollouts) -> None:
    world = rollouts.fakes.worlds["in-place"] = serving_world("in-place", pods=1)
    ended = await rollouts.roll_out("in-place", make_desired(2, spec=make_spec(replicas__min=3)))
    assert ended.phases == ["Validating", "Promoting", "Ready"]
    assert [one.replicas for one in world.releases.values()] == [3]
    assert not world.installed
    assert world.record is not None
    assert world.record.generation == 2


async def test_rerun_of_the_recorded_generation_resolves_afresh(rollouts: Rollouts) -> None:
    await rollouts.roll_out("again")
    world = rollouts.world("again")
    before, world.tree = set(world.releases), "tree-2"
    ended = await rollouts.roll_out("again")
    assert ended.last.phase is Phase.READY
    assert world.calls.count("resolve-source") == 2
    assert set(world.releases).isdisjoint(before)


async def test_rerun_that_finds_the_same_revision_deploys_nothing(rollouts: Rollouts) -> None:
    await rollouts.roll_out("same")
    ended = await rollouts.roll_out("same")
    assert ended.last.phase is Phase.READY
    assert len(rollouts.world("same").installed) == 1


async def test_run_begins_by_removing_what_a_terminated_one_left(rollouts: Rollouts) -> None:
    world = rollouts.fakes.worlds["left"] = serving_world("left")
    world.releases["left-badc0de0"] = Installed("badc0de0", 1)
    world.weights = {OLD: 80, "badc0de0": 20}
    world.faults["resolve-source"] = Fault(error=AccessDenied("no access"))
    ended = await rollouts.roll_out("left", make_desired(3, spec=NEXT_MODEL))
    assert ended.last.phase is Phase.FAILED
    assert (world.weights, set(world.releases)) == ({OLD: 100}, {f"left-{OLD}"})


async def test_promotion_that_a_killed_run_began_is_finished(rollouts: Rollouts) -> None:
    world = rollouts.fakes.worlds["half"] = serving_world("half")
    new = "badc0de0"
    world.releases[f"half-{new}"] = Installed(new, 2)
    world.weights, world.serving = {new: 100}, new
    world.faults["resolve-source"] = Fault(error=AccessDenied("no access"))
    policy = Policy(drain_seconds=7, gpu_poll_seconds=0.2)
    await rollouts.roll_out("half", make_desired(3, spec=NEXT_MODEL, policy=policy))
    assert [arg.drain_seconds for arg in world.taken["uninstall-release"]] == [7], "it served until a moment ago"
    assert (world.selector, world.serving, set(world.releases)) == (new, new, {f"half-{new}"})


async def test_poke_without_a_change_does_not_disturb_the_run(rollouts: Rollouts) -> None:
    world = rollouts.world("poked")
    fault = world.faults["pull-weights"] = Fault(hold=True)
    await rollouts.poke("poked")
    await rollouts.wait_entered("poked", "pull-weights")
    run = rollouts.handle("poked")
    await run.signal("desired_changed")
    await run.signal("desired_changed", "a payload nobody asked for")
    await run.signal("granted")
    fault.released.set()
    ended = await rollouts.wait("poked")
    assert ended.phases == ALL_PHASES
    assert len({one.run_id for one in await rollouts.reports("poked")}) == 1


async def test_running_body_takes_a_changed_budget_and_judges_by_it(rollouts: Rollouts) -> None:
    world = rollouts.world("budget")
    fault = world.faults["run-smoke-test"] = Fault(error=SmokeTestFailed("over budget"), times=1, hold=True)
    await rollouts.poke("budget", make_desired(1))
    await rollouts.wait_entered("budget", "run-smoke-test")
    await rollouts.poke("budget", make_desired(2, spec=make_spec(canary__smokeTest__ttftBudgetMs=900)))
    await rollouts.wait_generation("budget", 2)
    fault.released.set()
    ended = await rollouts.wait("budget")
    assert (ended.last.phase, ended.last.generation) == (Phase.READY, 2)
    assert [arg.ttft_budget_ms for arg in world.taken["run-smoke-test"]] == [250, 900]
    assert len(world.installed) == 1


async def test_deletion_takes_everything_down_and_drops_the_finalizer_last(rollouts: Rollouts) -> None:
    world = rollouts.fakes.worlds["deleted"] = serving_world("deleted")
    await rollouts.poke("deleted", make_desired(1, deleting=True))
    await rollouts.handle("deleted").result()
    assert world.calls[-1] == "drop-finalizer"
    assert (world.releases, world.weights, world.claimed, world.desired) == ({}, {}, False, None)
    assert await rollouts.uids_gone("deleted") == ["uid-1"]


async def test_deletion_during_a_rollout_undoes_it_first(rollouts: Rollouts) -> None:
    world = rollouts.world("cut")
    world.faults["run-smoke-test"] = Fault(hold=True)
    await rollouts.poke("cut")
    await rollouts.wait_entered("cut", "run-smoke-test")
    await rollouts.poke("cut", make_desired(1, deleting=True))
    await rollouts.handle("cut").result()
    assert (world.releases, world.claimed, world.desired) == ({}, False, None)
    assert world.calls.index("leave-line") < world.calls.index("drop-finalizer")


async def test_deletion_past_weight_100_does_not_wait_for_a_stalled_retirement(rollouts: Rollouts) -> None:
    world = rollouts.world("stalled")
    fault = world.faults["settle"] = Fault(error=Rejected("refused for good"))
    await rollouts.poke("stalled")
    await rollouts.wait_entered("stalled", "settle")
    await rollouts.poke("stalled", make_desired(1, deleting=True))
    await rollouts.handle("stalled").result()
    assert fault.times > 0
    assert (world.releases, world.weights, world.desired) == ({}, {}, None)


async def test_failed_teardown_keeps_the_finalizer_until_it_is_skipped(rollouts: Rollouts) -> None:
    world = rollouts.fakes.worlds["kept"] = serving_world("kept")
    world.faults["uninstall-release"] = Fault(error=AccessDenied("deployments are forbidden"))
    ended = await rollouts.roll_out("kept", make_desired(1, deleting=True))
    assert (ended.last.phase, ended.reason) == (Phase.FAILED, "AccessDenied")
    assert world.desired is not None
    await rollouts.poke("kept", make_desired(1, deleting=True, options=Options(skip_teardown=True)))
    await rollouts.handle("kept").result()
    assert world.desired is None


async def test_skip_teardown_ends_a_teardown_that_hangs(rollouts: Rollouts) -> None:
    world = rollouts.fakes.worlds["hangs"] = serving_world("hangs")
    world.faults["uninstall-release"] = Fault(hold=True)
    await rollouts.poke("hangs", make_desired(1, deleting=True))
    await rollouts.wait_entered("hangs", "uninstall-release")
    await rollouts.poke("hangs", make_desired(1, deleting=True, options=Options(skip_teardown=True)))
    await rollouts.handle("hangs").result()
    assert world.desired is None


async def test_skip_teardown_ends_an_undo_that_hangs(rollouts: Rollouts) -> None:
    world = rollouts.world("undo-hangs")
    world.faults["run-smoke-test"] = Fault(error=SmokeTestFailed("over budget"))
    world.faults["uninstall-release"] = Fault(hold=True)
    await rollouts.poke("undo-hangs")
    await rollouts.wait_entered("undo-hangs", "uninstall-release")
    await rollouts.poke("undo-hangs", make_desired(1, deleting=True, options=Options(skip_teardown=True)))
    await rollouts.handle("undo-hangs").result()
    assert world.desired is None


async def test_run_of_an_object_that_is_gone_takes_down_what_it_left(rollouts: Rollouts) -> None:
    world = rollouts.fakes.worlds["gone"] = serving_world("gone")
    world.desired = None
    await rollouts.poke("gone")
    await rollouts.handle("gone").result()
    assert (world.releases, world.weights, world.selector, world.claimed) == ({}, {}, None, False)
    assert await rollouts.uids_gone("gone") == [""]


async def test_object_made_again_while_what_the_old_one_left_is_taken_down_is_rolled_out(rollouts: Rollouts) -> None:
    world = rollouts.fakes.worlds["remade"] = serving_world("remade")
    world.desired = None
    fault = world.faults["uninstall-release"] = Fault(hold=True)
    await rollouts.poke("remade")
    await rollouts.wait_entered("remade", "uninstall-release")
    await rollouts.poke("remade", make_desired(1, uid="uid-2"))
    fault.released.set()
    ended = await rollouts.wait("remade")
    assert (ended.last.phase, ended.last.uid) == (Phase.READY, "uid-2")
    assert world.installed


async def test_leftovers_of_a_gone_object_that_cannot_go_are_told(rollouts: Rollouts) -> None:
    world = rollouts.fakes.worlds["gone-stuck"] = serving_world("gone-stuck")
    world.desired = None
    world.faults["uninstall-release"] = Fault(error=AccessDenied("deployments are forbidden"))
    await rollouts.poke("gone-stuck")
    with pytest.raises(WorkflowFailureError) as failed:
        await rollouts.handle("gone-stuck").result()
    assert "deployments are forbidden" in str(failed.value.cause)


@pytest.mark.parametrize("name", ["first-again", "dotted.name-1.2"])
async def test_names_with_dots_reach_ready(rollouts: Rollouts, name: str) -> None:
    ended = await rollouts.roll_out(name)
    assert ended.last.endpoint == names.endpoint_url(names.base_name(name), "default")


async def test_missing_reporter_does_not_disturb_a_rollout(rollouts: Rollouts) -> None:
    await rollouts.client.start_workflow("Rollout", id="rollout.default.mute", task_queue="plnt-control")
    await rollouts.handle("mute").result()
    assert rollouts.world("mute").selector is not None


async def test_reset_of_a_rolled_back_run_is_a_retry(rollouts: Rollouts) -> None:
    world = rollouts.world("retry")
    world.faults["run-smoke-test"] = Fault(error=SmokeTestFailed("over budget"))
    assert (await rollouts.roll_out("retry")).last.phase is Phase.ROLLED_BACK
    world.faults.clear()
    await rollouts.reset("retry")
    ended = await rollouts.wait("retry")
    assert (ended.last.phase, ended.last.last_error) == (Phase.READY, "")


async def test_queue_deadline_fails_the_run_before_anything_is_deployed(rollouts: Rollouts) -> None:
    world = rollouts.world("late")
    world.grants = False
    spec = make_spec(resources__gpuClass="plnt.test/late")
    policy = Policy(queue_deadline_seconds=1, gpu_poll_seconds=0.2)
    ended = await rollouts.roll_out("late", make_desired(spec=spec, policy=policy))
    assert (ended.last.phase, ended.reason) == (Phase.FAILED, "GpuQueueTimeout")
    assert "plnt.work/queue-deadline" in ended.last.last_error
    assert condition(ended.last, ConditionType.GPUS_RESERVED)[:2] == ("False", "GpuQueueTimeout")
    assert not world.installed


async def test_replicas_raised_during_retirement_are_waited_for(rollouts: Rollouts) -> None:
    world = rollouts.fakes.worlds["raised"] = serving_world("raised", pods=1)
    fault = world.faults["uninstall-release"] = Fault(hold=True)
    await rollouts.poke("raised", make_desired(2, spec=NEXT_MODEL))
    await rollouts.wait_entered("raised", "uninstall-release")
    spec = make_spec(model__storageUri="s3://models/next", replicas__min=3)
    await rollouts.poke("raised", make_desired(3, spec=spec))
    await rollouts.wait_generation("raised", 3)
    fault.released.set()
    ended = await rollouts.wait("raised")
    assert (ended.last.phase, ended.last.generation) == (Phase.READY, 3)
    assert [one.replicas for one in world.releases.values()] == [3]
    assert world.taken["await-release"][-1].replicas == 3
    assert world.record is not None
    assert world.record.generation == 3


async def test_run_under_a_foreign_id_fails_at_once(rollouts: Rollouts) -> None:
    run = await rollouts.client.start_workflow("Rollout", id="somebody-elses", task_queue="plnt-control")
    with pytest.raises(WorkflowFailureError):
        await run.result()


async def test_cancel_before_any_worker_came_is_told_and_nothing_is_done(rollouts: Rollouts) -> None:
    world = rollouts.world("early-cancel")
    queue = "late-control"
    await rollouts.client.start_workflow("ReportLog", id="status.default.early-cancel", task_queue=LOG_QUEUE)
    run = await rollouts.client.start_workflow("Rollout", id="rollout.default.early-cancel", task_queue=queue)
    await run.cancel()
    async with Worker(rollouts.client, task_queue=queue, workflows=[Rollout], workflow_runner=sandbox()):
        ended = await rollouts.wait("early-cancel")
    assert (ended.last.phase, ended.status) == (Phase.ROLLED_BACK, WorkflowExecutionStatus.CANCELED)
    assert await read_memo(rollouts, "early-cancel", str) == make_desired().identity
    assert set(world.calls) == {"load-desired"}


async def test_cancel_while_the_object_is_read_is_told(rollouts: Rollouts) -> None:
    fault = rollouts.world("read-cancel").faults["load-desired"] = Fault(hold=True)
    await rollouts.poke("read-cancel")
    await rollouts.wait_entered("read-cancel", "load-desired")
    await rollouts.handle("read-cancel").cancel()
    fault.released.set()
    ended = await rollouts.wait("read-cancel")
    assert (ended.last.phase, ended.status) == (Phase.ROLLED_BACK, WorkflowExecutionStatus.CANCELED)
    assert set(rollouts.world("read-cancel").calls) == {"load-desired"}


async def test_undo_that_never_succeeds_ends_at_its_deadline_and_says_what_is_left(rollouts: Rollouts) -> None:
    world = rollouts.fakes.worlds["bounded"] = serving_world("bounded")
    world.faults["watch-canary"] = Fault(error=SmokeTestFailed("the canary restarted"))
    world.faults["withdraw-canary"] = Fault(error=SourceUnavailable("the API server is away"))
    ended = await rollouts.roll_out("bounded", make_desired(2, spec=NEXT_MODEL, policy=BOUNDED))
    assert (ended.last.phase, ended.reason) == (Phase.FAILED, "RollbackIncomplete")
    assert "the API server is away" in ended.last.last_error
    assert "the canary restarted" in ended.last.last_error


async def test_teardown_that_never_succeeds_ends_at_its_deadline_and_keeps_the_finalizer(rollouts: Rollouts) -> None:
    world = rollouts.fakes.worlds["bounded-teardown"] = serving_world("bounded-teardown")
    world.faults["uninstall-release"] = Fault(error=SourceUnavailable("the API server is away"))
    ended = await rollouts.roll_out("bounded-teardown", make_desired(1, deleting=True, policy=BOUNDED))
    assert ended.last.phase is Phase.FAILED
    assert "the API server is away" in ended.last.last_error
    assert world.desired is not None
