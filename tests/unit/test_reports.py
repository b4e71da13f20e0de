"""What a run reports, from what it knows."""

from typing import Any

import pytest

from plnt.model.messages import AutoscalingState, PlanRef, SmokeReport, Tree
from plnt.model.reports import Facts, Failure, blame, build_conditions, build_report
from plnt.model.status import ConditionType, Phase
from tests.fakes.steps import make_desired, make_spec

FAILURE = Failure(reason="DeployFailed", message="the image cannot be pulled")
TREE = Tree(digest="0" * 64, bytes=2**30, proof="sha256")
SMOKE = SmokeReport(prompts=10, ttft_p50_ms=181.24, ttft_p90_ms=200, tpot_p50_ms=22)


def read(facts: Facts, kind: ConditionType, **changes: Any) -> tuple[str, str, str]:
    found = next(one for one in build_conditions(make_spec(**changes), facts) if one.type is kind)
    return (found.status.value, found.reason, found.message)


@pytest.mark.parametrize("phase", list(Phase))
def test_every_phase_reports_every_condition_once(phase: Phase) -> None:
    usual = [kind for kind in ConditionType if kind is not ConditionType.RUNTIME_DEPRECATED]
    for facts in (Facts(phase=phase), Facts(phase=phase, failure=FAILURE), Facts(phase=phase, unchanged=True)):
        assert [one.type for one in build_conditions(make_spec(), facts)] == usual
        given_up = build_conditions(make_spec(runtime="tgi"), facts)
        assert [one.type for one in given_up] == list(ConditionType)


def test_accepted_spec_with_warnings_says_them() -> None:
    assert read(Facts(accepted=True, warnings=["memory is tight", "odd heads"]), ConditionType.ACCEPTED) == (
        "True",
        "ValidWithWarnings",
        "memory is tight; odd heads",
    )


@pytest.mark.parametrize(
    ("facts", "kind"),
    [
        pytest.param(Facts(), ConditionType.ACCEPTED, id="validating"),
        pytest.param(Facts(accepted=True), ConditionType.WEIGHTS_READY, id="pulling"),
        pytest.param(Facts(accepted=True, tree=TREE), ConditionType.GPUS_RESERVED, id="in-line"),
        pytest.param(Facts(accepted=True, tree=TREE, reserved=True), ConditionType.DEPLOYED, id="deploying"),
        pytest.param(
            Facts(accepted=True, tree=TREE, reserved=True, pods=1), ConditionType.SMOKE_PASSED, id="smoke-testing"
        ),
        pytest.param(
            Facts(accepted=True, tree=TREE, reserved=True, pods=1, smoke=SMOKE), ConditionType.PROMOTED, id="baking"
        ),
    ],
)
def test_failure_is_told_by_the_condition_of_what_failed(facts: Facts, kind: ConditionType) -> None:
    failed = facts.model_copy(update={"failure": FAILURE, "phase": Phase.FAILED})
    assert blame(failed) is kind
    assert read(failed, kind) == ("False", "DeployFailed", "the image cannot be pulled")
    assert read(failed, ConditionType.READY)[:2] == ("False", "DeployFailed")
    assert read(failed, ConditionType.STALLED)[:2] == ("True", "DeployFailed")


def test_conditions_hold_the_numbers() -> None:
    facts = Facts(tree=TREE, smoke=SMOKE, weights={"0ddba11e": 80, "badc0de0": 20})
    assert "1073741824 bytes (1024 MiB)" in read(facts, ConditionType.WEIGHTS_READY)[2]
    assert read(facts, ConditionType.SMOKE_PASSED)[2] == (
        "10 prompts, TTFT p50 181.2 ms (budget 250 ms), TPOT p50 22.0 ms"
    )
    assert read(facts, ConditionType.PROMOTED)[2] == "weights: 0ddba11e 80 %, badc0de0 20 %"


def test_autoscaling_is_told_as_it_was_settled_and_pending_before() -> None:
    pending = read(Facts(), ConditionType.AUTOSCALING_READY, autoscaling__targetTokensPerSecond=100)
    assert pending[:2] == ("False", "Pending")
    state = AutoscalingState(ready=True, reason="Autoscaling", message="1 to 4 pods")
    told = read(Facts(autoscaling=state), ConditionType.AUTOSCALING_READY)
    assert told == ("True", "Autoscaling", "1 to 4 pods")


@pytest.mark.parametrize(("least", "reason"), [(0, "ScaleToZeroUnavailable"), (1, "NotRequested")])
def test_size_that_the_spec_alone_decides_is_told_from_the_start(least: int, reason: str) -> None:
    told = read(Facts(), ConditionType.AUTOSCALING_READY, replicas__min=least)
    assert told[:2] == ("False", reason)


def test_undo_is_told_while_the_phase_stays() -> None:
    facts = Facts(phase=Phase.SMOKE_TESTING, undoing=True, failure=FAILURE)
    assert read(facts, ConditionType.RECONCILING)[:2] == ("True", "Undoing")


def test_last_error_opens_with_the_reason() -> None:
    report = build_report(make_desired(), Facts(failure=FAILURE, plan=PlanRef(digest="d", files=1, bytes=1)), "r", 1, 1)
    assert report.last_error == "DeployFailed: the image cannot be pulled"
    assert build_report(make_desired(), Facts(), "r", 1, 1).last_error == ""
