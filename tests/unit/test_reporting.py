from typing import Any

import pytest

from plnt.model.reporting import ReporterState, add_progress, counts
from plnt.model.status import Condition, ConditionStatus, ConditionType, Phase, PhaseReport, Progress
from plnt.steps import STEPS, phase_of

RESERVED = Condition(type=ConditionType.GPUS_RESERVED, status=ConditionStatus.FALSE, reason="InLine", message="needs 2")


def report(**changes: Any) -> PhaseReport:
    fields: dict[str, Any] = {"uid": "u", "generation": 1, "run_id": "r", "phase": Phase.DEPLOYING}
    return PhaseReport(**{"conditions": [RESERVED], **fields, **changes})


def after(state: ReporterState, *words: Progress) -> PhaseReport:
    for word in words:
        state = add_progress(state, word, phase_of(word.step))
    assert state.report is not None
    return state.report


def word(step: str, message: str = "", last_error: str = "", run_id: str = "r") -> Progress:
    return Progress(run_id=run_id, step=step, message=message, last_error=last_error)


def message_of(found: PhaseReport, kind: ConditionType) -> str | None:
    return next((one.message for one in found.conditions if one.type is kind), None)


@pytest.mark.parametrize(
    ("newer", "expected"),
    [
        pytest.param({"generation": 3, "sent_at": 1.0, "seq": 1}, True, id="a newer generation"),
        pytest.param({"sent_at": 11.0, "seq": 1}, True, id="a reset run that counts from one again"),
        pytest.param({"seq": 6}, True, id="the next word of the same moment"),
        pytest.param({}, True, id="the very same, written again"),
        pytest.param({"seq": 4}, False, id="an earlier word"),
        pytest.param({"sent_at": 9.0, "seq": 9}, False, id="an overtaken run"),
        pytest.param({"generation": 1, "sent_at": 99.0}, False, id="an older generation"),
        pytest.param({"uid": "other", "generation": 1}, True, id="another object, to be looked at"),
    ],
)
def test_report_counts_by_generation_then_time_then_number(newer: dict[str, Any], expected: bool) -> None:
    base = {"generation": 2, "sent_at": 10.0, "seq": 5}
    assert counts(ReporterState(report=report(**base)), report(**{**base, **newer})) is expected


def test_word_changes_only_the_condition_of_its_step() -> None:
    found = after(ReporterState(report=report()), word("join-line", "1 of 2, needs 2, free 0"))
    assert message_of(found, ConditionType.GPUS_RESERVED) == "1 of 2, needs 2, free 0"
    assert [one.type for one in found.conditions] == [ConditionType.GPUS_RESERVED]


def test_word_adds_a_condition_that_the_run_did_not_state() -> None:
    found = after(ReporterState(report=report()), word("await-release", "0 of 1 pods"))
    assert message_of(found, ConditionType.DEPLOYED) == "0 of 1 pods"


def test_word_without_message_leaves_the_condition_as_it_is() -> None:
    found = after(ReporterState(report=report()), word("join-line", last_error="ApiUnavailable: no answer"))
    assert message_of(found, ConditionType.GPUS_RESERVED) == "needs 2"
    assert found.last_error == "ApiUnavailable: no answer"


def test_late_word_does_not_talk_over_what_was_reached() -> None:
    granted = RESERVED.model_copy(update={"status": ConditionStatus.TRUE, "message": "2 GPUs"})
    found = after(ReporterState(report=report(conditions=[granted])), word("join-line", "1 of 2"))
    assert message_of(found, ConditionType.GPUS_RESERVED) == "2 GPUs"


@pytest.mark.parametrize(
    "late",
    [
        pytest.param(word("pull-weights", "99 %"), id="a step of an earlier phase"),
        pytest.param(word("withdraw-canary", "draining"), id="a step of no phase"),
        pytest.param(word("no-such-step", "hello"), id="an unknown step"),
        pytest.param(word("join-line", "1 of 2", run_id="older"), id="another run"),
    ],
)
def test_word_is_dropped_in_a_wrong_phase_or_of_another_run(late: Progress) -> None:
    state = ReporterState(report=report())
    assert add_progress(state, late, phase_of(late.step)) is state


def test_word_is_dropped_before_any_run_reported() -> None:
    assert add_progress(ReporterState(), word("join-line", "1 of 2"), Phase.DEPLOYING) == ReporterState()
    pending = ReporterState(report=report(run_id="", phase=Phase.PENDING))
    assert add_progress(pending, word("join-line", "x", run_id=""), Phase.PENDING) is pending


def test_error_goes_when_its_own_step_got_further() -> None:
    failed, further = word("await-release", last_error="ApiUnavailable: x"), word("await-release", "1 of 1 pods")
    assert after(ReporterState(report=report()), failed, further).last_error == ""


def test_error_stays_when_another_step_got_further() -> None:
    failed, further = word("await-release", last_error="ApiUnavailable: x"), word("join-line", "1 of 1")
    assert after(ReporterState(report=report()), failed, further).last_error == "ApiUnavailable: x"


def test_error_that_the_run_itself_reported_stays() -> None:
    state = ReporterState(report=report(last_error="DeployFailed: x"))
    assert after(state, word("await-release", "1 of 1 pods")).last_error == "DeployFailed: x"


def test_every_step_of_a_phase_speaks_in_some_condition() -> None:
    for step in STEPS:
        if step.phase is not None:
            found = after(ReporterState(report=report(phase=step.phase, conditions=[])), word(step.name, "hello"))
            assert [one.message for one in found.conditions] == ["hello"], step.name
