"""What to run, newest first, when a later step fails or the run is stopped."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from temporalio import workflow
from temporalio.common import RetryPolicy
from temporalio.exceptions import ActivityError

from plnt.errors import StaleRun
from plnt.model.message import Message
from plnt.model.reports import Failure
from plnt.steps import Step
from workflows.run_step import explain, run_step

_FIRST_PAUSE, _LONGEST_PAUSE = timedelta(seconds=1), timedelta(minutes=1)
_TIRELESS = RetryPolicy(initial_interval=timedelta(seconds=1), maximum_interval=timedelta(seconds=30))


@dataclass(frozen=True, slots=True)
class Undo:
    """One undo. ``deployed``: something of this generation stood in the cluster, so the run ends RolledBack."""

    step: Step[Any, Any]
    arg: Message
    summary: str
    deployed: bool = False


class UndoList:
    """The undos of one attempt; each is put down before the step that it undoes."""

    def __init__(self) -> None:
        self._undos: list[Undo] = []

    def put_down(self, undo: Undo) -> None:
        """Register an undo; a second one of the same step replaces the first."""
        self.strike(undo.step)
        self._undos.append(undo)

    def strike(self, step: Step[Any, Any]) -> None:
        """Forget the undo that ``step`` carries out: what it undoes is to stay, or was undone."""
        self._undos = [undo for undo in self._undos if undo.step.name != step.name]

    def find(self, step: Step[Any, Any]) -> Undo | None:
        """Give the undo that ``step`` carries out."""
        return next((undo for undo in self._undos if undo.step.name == step.name), None)

    @property
    def pending(self) -> bool:
        """Whether anything is to be undone."""
        return bool(self._undos)

    @property
    def deployed(self) -> bool:
        """Whether an undo takes something of this generation out of the cluster."""
        return any(undo.deployed for undo in self._undos)

    async def run(self, deadline: timedelta, tell: Callable[[Failure], None]) -> Failure | None:
        """Run every undo within ``deadline`` each, and give the failure of the one that stopped the rest.

        A release may only go when nothing is routed to it, so a failed undo ends the list. What fails meanwhile
        goes to ``tell``: a person may repair it while the undo is tried on.
        """
        while self._undos:
            undo = self._undos[-1]
            failure = await _insist(undo, deadline, tell)
            if failure is not None:
                return failure.model_copy(update={"message": f"{undo.step.name} failed: {failure}"})
            self._undos.pop()
        return None


async def _insist(undo: Undo, deadline: timedelta, tell: Callable[[Failure], None]) -> Failure | None:
    """Run one undo until it succeeds or the deadline passes; a run that was overtaken has nothing to undo."""
    until, pause = workflow.now() + deadline, _FIRST_PAUSE
    while True:
        left = until - workflow.now()
        try:
            await run_step(undo.step, undo.arg, summary=undo.summary, schedule_to_close=left, retry=_TIRELESS)
        except ActivityError as error:
            failure = explain(error)
            if failure.reason == StaleRun.__name__ or workflow.now() + pause >= until:
                return failure
            tell(failure)
            await workflow.sleep(pause, summary=f"pause before {undo.step.name} is tried again")
            pause = min(2 * pause, _LONGEST_PAUSE)
        else:
            return None
