"""Which report counts, and how an activity's word changes the newest one; the status reporter's decisions."""

from plnt.model.message import Message
from plnt.model.status import Condition, ConditionStatus, ConditionType, Phase, PhaseReport, Progress

CONDITION_OF_STEP = {
    "pull-weights": ConditionType.WEIGHTS_READY,
    "join-line": ConditionType.GPUS_RESERVED,
    "install-release": ConditionType.DEPLOYED,
    "await-release": ConditionType.DEPLOYED,
    "run-smoke-test": ConditionType.SMOKE_PASSED,
    "watch-canary": ConditionType.SMOKE_PASSED,
    "set-weights": ConditionType.PROMOTED,
    "settle": ConditionType.PROMOTED,
}
"""The condition that a step works towards; a step that is not listed speaks in Reconciling."""

IN_PROGRESS = "InProgress"
"""Reason of a condition that a word mentions before the run states it."""


class ReporterState(Message):
    """What a status reporter knows: the newest report that counts, with the words since then worked in."""

    report: PhaseReport | None = None
    error_step: str = ""
    """The step whose word set the report's lastError; empty when the run itself did, or nobody."""

    @property
    def uid(self) -> str:
        """The object that the reports are about; empty when nothing was reported."""
        return self.report.uid if self.report else ""


class Handover(Message):
    """What a reporter's run hands to the next one, so that no history grows without end."""

    state: ReporterState
    inbox: list[PhaseReport | str]
    """Reports, and uids that are said to be gone, in the order in which they came."""
    has_word: bool
    """Whether the state holds a word that was not written yet."""


def counts(state: ReporterState, report: PhaseReport) -> bool:
    """Tell whether ``report`` is at least as new as what is known.

    For another uid only the live object can tell, so it counts until that was looked at. An equal one counts
    too: written again it changes nothing, or repairs what somebody else changed.
    """
    return state.report is None or state.uid != report.uid or report.order >= state.report.order


def add_progress(state: ReporterState, word: Progress, phase: Phase | None) -> ReporterState:
    """Give the state after ``word`` of a step that runs in ``phase``; the same state when it is dropped.

    It is dropped unless that phase is the one that its run reported last: a late word never shows up in a
    phase that follows.
    """
    report = state.report
    if report is None or not word.run_id or word.run_id != report.run_id or phase is not report.phase:
        return state
    last_error, error_step = report.last_error, state.error_step
    if word.last_error:
        last_error, error_step = word.last_error, word.step
    elif error_step == word.step:
        last_error, error_step = "", ""
    conditions = _say(report.conditions, CONDITION_OF_STEP.get(word.step, ConditionType.RECONCILING), word.message)
    return ReporterState(
        report=report.model_copy(update={"last_error": last_error, "conditions": conditions}), error_step=error_step
    )


def _say(conditions: list[Condition], about: ConditionType, message: str) -> list[Condition]:
    if not message:
        return conditions
    known = next((condition for condition in conditions if condition.type is about), None)
    if known is None:
        status = ConditionStatus.TRUE if about is ConditionType.RECONCILING else ConditionStatus.FALSE
        return [*conditions, Condition(type=about, status=status, reason=IN_PROGRESS, message=message)]
    if known.status is ConditionStatus.TRUE and about is not ConditionType.RECONCILING:
        return conditions
    return [entry.model_copy(update={"message": message}) if entry is known else entry for entry in conditions]
