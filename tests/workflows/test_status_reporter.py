"""The status reporter on a real Temporal server: what stands in the WorkflowRun's status, and when."""

from collections.abc import AsyncIterator
from typing import Any
from uuid import uuid4

import pytest
from temporalio.client import WorkflowExecutionStatus

from plnt.model.poke import pending_report
from plnt.model.status import Condition, ConditionStatus, ConditionType, Phase, PhaseReport, Progress
from tests.fakes.bridge_server import BridgeServer, serve_bridge
from tests.fakes.waiting import eventually

EVENTS_TO_CONTINUE = 60
"""History events after which the server suggests to continue as new."""


@pytest.fixture(scope="module")
async def server() -> AsyncIterator[BridgeServer]:
    async with serve_bridge(f"limit.historyCount.suggestContinueAsNew={EVENTS_TO_CONTINUE}") as server:
        yield server


class Subject:
    """One WorkflowRun whose reporter runs."""

    def __init__(self, server: BridgeServer, name: str, uid: str) -> None:
        self.server, self.name, self.uid = server, name, uid

    async def report(self, phase: Phase, sent_at: float, seq: int = 1, **changes: Any) -> None:
        fields = {"uid": self.uid, "generation": 1, "run_id": "run", "phase": phase, "sent_at": sent_at, "seq": seq}
        await self.server.reporter(self.name).signal("report", PhaseReport(**{**fields, **changes}))

    async def say(self, step: str, message: str = "", last_error: str = "") -> None:
        word = Progress(run_id="run", step=step, message=message, last_error=last_error)
        await self.server.reporter(self.name).signal("progress", word)

    @property
    def status(self) -> dict[str, Any]:
        return self.server.status(self.name)

    @property
    def phases(self) -> list[str]:
        return [status["phase"] for status in self.server.api.statuses]

    def message(self, kind: ConditionType) -> str | None:
        found = {one["type"]: one["message"] for one in self.status.get("conditions", [])}
        return found.get(kind.value)

    async def until_phase(self, phase: Phase) -> None:
        await eventually(lambda: self.status.get("phase") == phase.value)


@pytest.fixture
async def subject(server: BridgeServer) -> Subject:
    name = f"case-{uuid4().hex[:8]}"
    server.api.put(name, uid=f"uid-of-{name}")
    server.api.statuses.clear()
    server.api.events.clear()
    seen = server.seen(name)
    await server.runs.open_reporter(seen, pending_report(seen))
    subject = Subject(server, name, seen.uid)
    await subject.until_phase(Phase.PENDING)
    return subject


async def test_every_phase_is_written_in_order(subject: Subject) -> None:
    phases = [phase for phase in Phase if phase not in {Phase.ROLLED_BACK, Phase.FAILED}]
    for number, phase in enumerate(phases[1:], start=1):
        await subject.report(phase, sent_at=100.0, seq=number)
    await subject.until_phase(Phase.READY)
    assert subject.phases == [phase.value for phase in phases]
    assert subject.status["workflowRunId"] == "run"
    # An event is recorded after its status is written.
    await eventually(lambda: len(subject.server.api.events) >= len(phases))
    assert [event["reason"] for event in subject.server.api.events] == subject.phases


async def test_reports_of_an_overtaken_run_are_dropped(subject: Subject) -> None:
    await subject.report(Phase.DEPLOYING, sent_at=200.0, seq=7)
    await subject.report(Phase.FAILED, sent_at=100.0, seq=9)
    await subject.report(Phase.PENDING, sent_at=0.0, seq=0, run_id="")
    await subject.report(Phase.SMOKE_TESTING, sent_at=200.0, seq=8)
    await subject.until_phase(Phase.SMOKE_TESTING)
    assert subject.phases == ["Pending", "Deploying", "SmokeTesting"]


async def test_run_that_was_reset_is_heard_though_it_counts_from_one(subject: Subject) -> None:
    await subject.report(Phase.ROLLED_BACK, sent_at=100.0, seq=9)
    await subject.report(Phase.VALIDATING, sent_at=300.0, seq=1, run_id="reset")
    await subject.until_phase(Phase.VALIDATING)
    assert subject.status["workflowRunId"] == "reset"


async def test_newer_generation_wins_over_a_later_word_of_the_older(subject: Subject) -> None:
    subject.server.api.put(subject.name, uid=subject.uid, generation=2)
    await subject.report(Phase.PENDING, sent_at=0.0, seq=0, generation=2, run_id="")
    await subject.report(Phase.READY, sent_at=500.0, seq=5)
    await subject.report(Phase.VALIDATING, sent_at=501.0, generation=2)
    await subject.until_phase(Phase.VALIDATING)
    assert subject.phases == ["Pending", "Pending", "Validating"]


async def test_recreated_object_starts_with_an_empty_order(subject: Subject) -> None:
    await subject.report(Phase.READY, sent_at=500.0)
    await subject.until_phase(Phase.READY)
    subject.server.api.remove(subject.name)
    subject.server.api.put(subject.name, uid="uid-new")
    await subject.report(Phase.FAILED, sent_at=501.0)
    await subject.report(Phase.PENDING, sent_at=0.0, uid="uid-new")
    await subject.until_phase(Phase.PENDING)
    await subject.server.reporter(subject.name).signal("gone", subject.uid)
    await subject.report(Phase.VALIDATING, sent_at=10.0, uid="uid-new")
    await subject.until_phase(Phase.VALIDATING)
    assert subject.phases == ["Pending", "Ready", "Pending", "Validating"]


@pytest.mark.parametrize("uid", ["own", ""])
async def test_reporter_ends_when_its_object_is_gone(subject: Subject, uid: str) -> None:
    subject.server.api.remove(subject.name)
    handle = subject.server.reporter(subject.name)
    await handle.signal("gone", subject.uid if uid else "")
    await handle.result()
    assert (await handle.describe()).status is WorkflowExecutionStatus.COMPLETED


async def test_reporter_stays_when_its_object_is_held_by_another_finalizer(subject: Subject) -> None:
    await subject.server.reporter(subject.name).signal("gone", subject.uid)
    await subject.report(Phase.VALIDATING, sent_at=1.0)
    await subject.until_phase(Phase.VALIDATING)


async def test_progress_is_gathered_and_phases_are_not(subject: Subject) -> None:
    await subject.report(Phase.PULLING_WEIGHTS, sent_at=1.0)
    await subject.until_phase(Phase.PULLING_WEIGHTS)
    for percent in range(30):
        await subject.say("pull-weights", f"{percent} %")
    await eventually(lambda: subject.message(ConditionType.WEIGHTS_READY) == "29 %")
    assert len(subject.phases) <= 2 + 3
    await subject.report(Phase.DEPLOYING, sent_at=2.0)
    await subject.say("pull-weights", "late")
    await subject.report(Phase.SMOKE_TESTING, sent_at=3.0)
    await subject.until_phase(Phase.SMOKE_TESTING)
    assert subject.message(ConditionType.WEIGHTS_READY) is None


async def test_last_error_shows_a_failed_attempt_until_its_step_gets_further(subject: Subject) -> None:
    await subject.report(Phase.PULLING_WEIGHTS, sent_at=1.0)
    await subject.until_phase(Phase.PULLING_WEIGHTS)
    await subject.say("pull-weights", last_error="SourceUnavailable: no answer")
    await eventually(lambda: subject.status.get("lastError") == "SourceUnavailable: no answer")
    await subject.say("pull-weights", "1 %")
    await eventually(lambda: "lastError" not in subject.status)


async def test_status_is_written_on_the_newest_object_when_it_changes_meanwhile(subject: Subject) -> None:
    def change_once() -> None:
        subject.server.api.before_status_write = lambda: None
        subject.server.api.put(subject.name, uid=subject.uid, labels={"changed": "meanwhile"})

    subject.server.api.before_status_write = change_once
    await subject.report(Phase.VALIDATING, sent_at=1.0)
    await subject.until_phase(Phase.VALIDATING)
    assert subject.server.api.objects[("default", subject.name)]["metadata"]["labels"] == {"changed": "meanwhile"}


async def test_report_waits_for_a_right_that_is_missing(subject: Subject) -> None:
    subject.server.api.refusal = 403
    await subject.report(Phase.VALIDATING, sent_at=1.0)
    await subject.report(Phase.DEPLOYING, sent_at=2.0)
    handle = subject.server.reporter(subject.name)

    async def attempts() -> int:
        pending = (await handle.describe()).raw_description.pending_activities
        return max((one.attempt for one in pending), default=0)

    while await attempts() < 2:
        pass
    subject.server.api.refusal = 0
    await subject.until_phase(Phase.DEPLOYING)
    assert subject.phases == ["Pending", "Validating", "Deploying"]


async def test_equal_report_writes_nothing(subject: Subject) -> None:
    done = Condition(type=ConditionType.DEPLOYED, status=ConditionStatus.TRUE, reason="PodsReady")
    for _ in range(3):
        await subject.report(Phase.READY, sent_at=5.0, conditions=[done])
    await subject.report(Phase.VALIDATING, sent_at=6.0)
    await subject.until_phase(Phase.VALIDATING)
    assert subject.phases == ["Pending", "Ready", "Validating"]


async def test_order_survives_continue_as_new(subject: Subject) -> None:
    handle = subject.server.reporter(subject.name)
    first = (await handle.describe()).run_id
    for number in range(EVENTS_TO_CONTINUE):
        await subject.report(Phase.DEPLOYING, sent_at=100.0, seq=number)
    while (await handle.describe()).run_id == first:
        await subject.report(Phase.DEPLOYING, sent_at=101.0)
    await subject.report(Phase.FAILED, sent_at=50.0)
    await subject.report(Phase.READY, sent_at=102.0)
    await subject.until_phase(Phase.READY)
    assert "Failed" not in subject.phases


async def test_bare_signals_from_the_command_line_do_no_harm(subject: Subject) -> None:
    handle = subject.server.reporter(subject.name)
    for signal in ("report", "progress", "gone"):
        await handle.signal(signal)
    await subject.report(Phase.VALIDATING, sent_at=1.0)
    await subject.until_phase(Phase.VALIDATING)
