"""Writes what runs and activities report into a WorkflowRun's status, in order."""

import contextlib
from collections import deque

from temporalio import workflow
from temporalio.exceptions import ActivityError

from plnt.model import names, reporting
from plnt.model.reporting import Handover, ReporterState
from plnt.model.status import PhaseReport, Progress, StatusWrite
from plnt.steps import WRITE_STATUS, phase_of
from workflows.run_step import run_step

QUIET_SECONDS = 1.0
"""Least time between a write and a write of progress, in seconds: progress is for people."""


@workflow.defn(name="StatusReporter")
class StatusReporter:
    """One for each WorkflowRun; lives as long as it does.

    Reports are written one by one in the order in which they came, progress only when nothing else waits.
    Handlers have defaults for their arguments: a bare signal from the command line must not wedge the workflow.
    """

    @workflow.init
    def __init__(self, before: Handover | None = None) -> None:
        self._state = before.state if before else ReporterState()
        self._inbox: deque[PhaseReport | str] = deque(before.inbox if before else ())
        self._has_word = before.has_word if before else False
        self._quiet_until = 0.0
        self._is_gone = False

    @workflow.signal
    def report(self, report: PhaseReport | None = None) -> None:
        """A run, or the bridge, says where the rollout stands."""
        if report is not None:
            self._inbox.append(report)

    @workflow.signal
    def progress(self, word: Progress | None = None) -> None:
        """An activity says how far it is."""
        if word is None:
            return
        after = reporting.add_progress(self._state, word, phase_of(word.step))
        self._has_word |= after != self._state
        self._state = after

    @workflow.signal
    def gone(self, uid: str = "") -> None:
        """Somebody saw that the object with this uid is gone; an empty one stands for any."""
        self._inbox.append(uid)

    @workflow.run
    async def run(self, _: Handover | None = None) -> None:
        """Write until the WorkflowRun is gone."""
        while self._inbox or not self._is_gone:
            await workflow.wait_condition(lambda: bool(self._inbox) or self._has_word)
            if self._inbox:
                await self._take(self._inbox.popleft())
            else:
                await self._write_word()
            if workflow.info().is_continue_as_new_suggested() and not self._is_gone:
                workflow.continue_as_new(Handover(state=self._state, inbox=[*self._inbox], has_word=self._has_word))

    async def _take(self, item: PhaseReport | str) -> None:
        if isinstance(item, str):
            await self._look(item)
        elif reporting.counts(self._state, item):
            await self._write_report(item)

    async def _write_report(self, report: PhaseReport) -> None:
        before, self._state = self._state, ReporterState(report=report)
        self._has_word = False
        live_uid = await self._write(report)
        if live_uid != report.uid:
            self._forget(before if live_uid and before.uid == live_uid else ReporterState())

    async def _write_word(self) -> None:
        pause = self._quiet_until - workflow.time()
        if pause > 0:
            with contextlib.suppress(TimeoutError):
                await workflow.wait_condition(
                    lambda: bool(self._inbox), timeout=pause, timeout_summary="gather progress"
                )
        if self._inbox:
            return
        self._has_word = False
        live_uid = await self._write(self._state.report)
        if live_uid != self._state.uid:
            self._forget(ReporterState())

    async def _look(self, gone_uid: str) -> None:
        if gone_uid and self._state.uid not in ("", gone_uid):
            return
        live_uid = await self._write(None)
        if live_uid is None or live_uid != self._state.uid:
            self._forget(ReporterState())

    def _forget(self, state: ReporterState) -> None:
        self._state, self._has_word = state, False

    async def _write(self, report: PhaseReport | None) -> str | None:
        """Give the live object's uid; a report that the API server refuses for good is given up, and logged."""
        namespace, name = names.parse_workflow_id(workflow.info().workflow_id)
        summary = "which object lives" if report is None else f"{report.phase.value}, generation {report.generation}"
        try:
            written = await run_step(
                WRITE_STATUS, StatusWrite(namespace=namespace, name=name, report=report), summary=summary
            )
        except ActivityError as error:
            if report is None:
                raise
            workflow.logger.error("status not written", extra={"error": str(error.cause)})
            return report.uid
        finally:
            self._quiet_until = workflow.time() + QUIET_SECONDS
        self._is_gone = written.live_uid is None
        return written.live_uid
