from datetime import UTC, datetime
from typing import Any

import pytest

from plnt.model.status import Condition, ConditionStatus, ConditionType, Phase, PhaseReport
from plnt.model.status_patch import build_status, is_written

EARLIER = "2026-01-01T00:00:00Z"
NOW = datetime(2026, 1, 1, 0, 1, tzinfo=UTC)


def live(generation: int = 1, **status: Any) -> dict[str, Any]:
    return {"metadata": {"generation": generation}, "status": status}


def condition(kind: ConditionType, *, holds: bool, message: str = "") -> Condition:
    status = ConditionStatus.TRUE if holds else ConditionStatus.FALSE
    return Condition(type=kind, status=status, reason="Because", message=message)


def report(phase: Phase, *conditions: Condition, **changes: Any) -> PhaseReport:
    fields = {"uid": "u", "generation": 1, "run_id": "r", "phase": phase, "conditions": list(conditions)}
    return PhaseReport(**{**fields, **changes})


def find(status: dict[str, Any], kind: ConditionType) -> dict[str, Any]:
    return next(entry for entry in status["conditions"] if entry["type"] == kind.value)


def test_status_holds_what_kubectl_wait_compares_when_ready() -> None:
    status = build_status(live(2), report(Phase.READY, generation=2, endpoint="http://m:8000"), NOW)
    assert status["phase"] == "Ready"
    assert status["endpoint"] == "http://m:8000"
    assert status["observedGeneration"] == 2
    assert find(status, ConditionType.READY)["status"] == "True"
    assert all(entry["observedGeneration"] == 2 for entry in status["conditions"])


@pytest.mark.parametrize("phase", [phase for phase in Phase if phase is not Phase.READY])
def test_status_is_never_ready_in_another_phase_even_if_a_run_says_so(phase: Phase) -> None:
    status = build_status(live(), report(phase, condition(ConditionType.READY, holds=True)), NOW)
    assert find(status, ConditionType.READY)["status"] == "False"


def test_status_is_not_ready_when_an_older_generation_became_so() -> None:
    ready = find(build_status(live(3), report(Phase.READY, generation=2), NOW), ConditionType.READY)
    assert (ready["status"], ready["reason"], ready["observedGeneration"]) == ("False", "NewerGeneration", 2)


def test_transition_time_stays_while_a_condition_only_changes_its_words() -> None:
    before = build_status(live(), report(Phase.DEPLOYING, condition(ConditionType.DEPLOYED, holds=False)), NOW)
    find(before, ConditionType.DEPLOYED)["lastTransitionTime"] = EARLIER
    said = condition(ConditionType.DEPLOYED, holds=False, message="1 of 2 pods")
    after = find(build_status(live(**before), report(Phase.DEPLOYING, said), NOW), ConditionType.DEPLOYED)
    assert (after["message"], after["lastTransitionTime"]) == ("1 of 2 pods", EARLIER)


def test_transition_time_moves_when_a_condition_flips() -> None:
    before = build_status(live(), report(Phase.DEPLOYING, condition(ConditionType.DEPLOYED, holds=False)), NOW)
    find(before, ConditionType.DEPLOYED)["lastTransitionTime"] = EARLIER
    flipped = report(Phase.DEPLOYING, condition(ConditionType.DEPLOYED, holds=True))
    after = find(build_status(live(**before), flipped, NOW), ConditionType.DEPLOYED)
    assert after["lastTransitionTime"] == "2026-01-01T00:01:00Z"


def test_endpoint_of_what_serves_stays_until_somebody_looked() -> None:
    pending = report(Phase.PENDING, run_id="", generation=2, endpoint_known=False)
    assert build_status(live(2, endpoint="http://old"), pending, NOW)["endpoint"] == "http://old"


def test_endpoint_and_last_error_go_when_a_run_has_none() -> None:
    status = build_status(live(endpoint="http://old", lastError="X: y"), report(Phase.VALIDATING), NOW)
    assert not {"endpoint", "lastError"} & status.keys()


def test_texts_are_cut_to_what_the_crd_takes() -> None:
    long = report(
        Phase.FAILED, condition(ConditionType.DEPLOYED, holds=False, message="x" * 9000), last_error="y" * 9000
    )
    status = build_status(live(), long, NOW)
    assert len(status["lastError"]) == len(find(status, ConditionType.DEPLOYED)["message"]) == 4096


def test_status_counts_as_written_whatever_the_order_of_conditions() -> None:
    wanted = build_status(live(), report(Phase.DEPLOYING, condition(ConditionType.DEPLOYED, holds=False)), NOW)
    there = {**wanted, "conditions": list(reversed(wanted["conditions"]))}
    assert is_written(live(**there), wanted)


def test_status_does_not_count_as_written_when_a_field_should_go() -> None:
    wanted = build_status(live(), report(Phase.VALIDATING), NOW)
    assert not is_written(live(**wanted, lastError="X: y"), wanted)
