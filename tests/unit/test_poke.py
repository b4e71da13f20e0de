from typing import Any

import pytest

from plnt.model.options import options_digest
from plnt.model.poke import Action, LatestRun, RunState, Seen, decide, pending_report, read_seen
from plnt.model.status import ConditionType, Phase, PhaseReport

DIGEST = options_digest({}, {})
REPORT = PhaseReport(uid="u", generation=2, phase=Phase.ROLLED_BACK)


def manifest(*, status: dict[str, Any] | None = None, spec: object = None, **meta: Any) -> dict[str, Any]:
    fields = {"namespace": "ns", "name": "n", "uid": "u", "resourceVersion": "7", "generation": 2}
    return {"metadata": {**fields, **meta}, "spec": spec or {}, "status": status or {}}


def settled(phase: str = "Ready", **status: Any) -> dict[str, Any]:
    return {"phase": phase, "observedGeneration": 2, "observedOptions": DIGEST, **status}


def seen(**changes: Any) -> Seen:
    return read_seen(manifest(**changes))


@pytest.mark.parametrize("phase", ["Ready", "RolledBack", "Failed"])
@pytest.mark.parametrize("listed", [True, False])
def test_settled_object_is_left_alone_at_start_and_after(phase: str, listed: bool) -> None:
    decision = decide(seen(status=settled(phase)), poked=False, listed=listed)
    assert decision.action is Action.IGNORE


@pytest.mark.parametrize(
    "status",
    [
        pytest.param({}, id="no status"),
        pytest.param(settled("Deploying"), id="a phase that goes on"),
        pytest.param(settled(observedGeneration=1), id="an older generation"),
        pytest.param(settled(observedOptions="other"), id="other annotations"),
    ],
)
def test_unsettled_object_is_looked_up_in_a_list_and_poked_by_an_event(status: dict[str, Any]) -> None:
    assert decide(seen(status=status), poked=False, listed=True).action is Action.LOOK_UP
    assert decide(seen(status=status), poked=False, listed=False).action is Action.POKE


def test_event_of_a_poked_identity_is_ignored() -> None:
    assert decide(seen(), poked=True, listed=False).action is Action.IGNORE


@pytest.mark.parametrize(
    ("state", "same", "poked", "expected"),
    [
        pytest.param(RunState.NONE, False, True, Action.POKE, id="nothing ran"),
        pytest.param(RunState.LOST, True, True, Action.POKE, id="terminated or timed out"),
        pytest.param(RunState.OPEN, False, False, Action.POKE, id="an open run that this process did not poke"),
        pytest.param(RunState.OPEN, False, True, Action.IGNORE, id="an open run that it poked"),
        pytest.param(RunState.CLOSED, False, True, Action.POKE, id="closed for another identity"),
        pytest.param(RunState.CLOSED, True, False, Action.SEND, id="closed for this identity"),
        pytest.param(RunState.CLOSED, True, True, Action.SEND, id="closed for this identity, poked"),
    ],
)
def test_looked_up_object_is_decided_by_its_newest_run(
    state: RunState, same: bool, poked: bool, expected: Action
) -> None:
    thing = seen()
    latest = LatestRun(state=state, identity=thing.identity if same else "other", report=REPORT)
    assert decide(thing, poked=poked, listed=True, latest=latest).action is expected


@pytest.mark.parametrize(
    "change",
    [
        {"uid": "v"},
        {"generation": 3},
        {"annotations": {"plnt.work/bake-seconds": "5"}},
        {"labels": {"kueue.x-k8s.io/queue-name": "q"}},
        {"deletionTimestamp": "2026-01-01T00:00:00Z"},
    ],
    ids=lambda change: next(iter(change)),
)
def test_identity_changes_with_everything_that_steers_a_rollout(change: dict[str, Any]) -> None:
    assert seen(**change).identity != seen().identity


def test_identity_stays_when_others_annotate_the_object() -> None:
    assert seen(annotations={"example.org/note": "x"}).identity == seen().identity


@pytest.mark.parametrize("spec", [{}, {"resources": 3, "model": "x"}, {"resources": {"gpu": "two"}}])
def test_object_with_a_spec_of_any_shape_is_read(spec: object) -> None:
    assert seen(spec=spec).key == ("ns", "n")


def test_pending_is_reported_for_a_new_generation_only() -> None:
    assert pending_report(seen(status=settled())) is None
    assert pending_report(seen(status=settled(observedOptions="other"))) is None
    found = pending_report(seen(status=settled(observedGeneration=1)))
    assert found is not None
    assert (found.phase, found.generation, found.order) == (Phase.PENDING, 2, (2, 0.0, 0))
    assert not found.endpoint_known


def test_pending_says_that_a_deletion_waits() -> None:
    found = pending_report(seen(deletionTimestamp="2026-01-01T00:00:00Z"))
    assert found is not None
    assert {one.type: one.reason for one in found.conditions}[ConditionType.RECONCILING] == "Deleting"
