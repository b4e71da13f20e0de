"""One run's attempt at one generation: what it works on, what it knows, what it has to undo."""

import asyncio
from collections.abc import Callable
from datetime import timedelta
from typing import Any

from temporalio import workflow
from temporalio.common import SearchAttributeKey
from temporalio.exceptions import ActivityError

from plnt.errors import EndpointNotReady
from plnt.model import messages as m
from plnt.model import names
from plnt.model.desired import Desired, Ref
from plnt.model.reports import Facts, Failure, build_report, describe_run
from plnt.model.status import Phase
from plnt.steps import In, Out, Step
from workflows.outbox import Outbox
from workflows.run_step import explain, run_step
from workflows.undo import UndoList

_PHASE = SearchAttributeKey.for_keyword("PlntPhase")
_GENERATION = SearchAttributeKey.for_int("PlntGeneration")

_FIRST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS = 5, 300
_SPARE_TIME = timedelta(minutes=5)
"""Time for retries on top of one full attempt, before a step that may not fail is shown as stalled."""


class HistoryFull(Exception):
    """The run has retried for so long that it is to go on with an empty history."""


class GivenUp(Exception):
    """A step past the point of no return failed in a way that waiting does not mend."""


def lacks_endpoints(failure: Failure) -> bool:
    """Say whether all was written and only the pods are missing: a newer generation mends that, waiting may not."""
    return failure.reason == EndpointNotReady.__name__


class Attempt:
    """The state that the phases share; they run one after the other, so nothing here is locked."""

    def __init__(self, ref: Ref, desired: Desired, outbox: Outbox, is_granted: Callable[[], bool]) -> None:
        self.ref = ref
        self.base = names.base_name(ref.name)
        self.desired = desired
        self.outbox = outbox
        self.is_granted = is_granted
        self.undos = UndoList()
        self.facts = Facts(deleting=desired.deleting)
        self.world = m.World()
        self.stable: m.ReleaseSeen | None = None
        """The release that serves; none = nothing does."""
        self.size = 0
        """Pods that the release under test is sized to."""
        self.applied = ""
        """Identity that was settled last."""
        self.superseded = False
        self.removed = False
        """The object is gone or being deleted: nothing of the attempt is worth finishing."""
        self.past_return = False
        """Weight 100 was written and read back: nothing of this attempt is undone any more."""
        self._seq = 0
        self._shown: tuple[Phase, int] | None = None

    @property
    def stable_pods(self) -> int:
        """Size of what serves."""
        return self.stable.replicas if self.stable else 0

    @property
    def stable_revision(self) -> str | None:
        """Revision that serves."""
        return self.stable.revision if self.stable else None

    @property
    def endpoint(self) -> str:
        """URL under which the model is reached once something serves."""
        return names.endpoint_url(self.base, self.ref.namespace, self.desired.policy.cluster_domain)

    def is_stopped(self) -> bool:
        """Say whether the attempt is to end now; past the point of no return only a deletion ends it."""
        if self.past_return:
            return self.removed
        return self.superseded or workflow.cancellation_reason() is not None

    def supersede(self, seen: Desired | None) -> None:
        """Note that the WorkflowRun asks for something else."""
        self.superseded = True
        self.removed = seen is None or seen.uid != self.desired.uid or seen.deleting

    async def take(
        self,
        step: Step[In, Out],
        arg: In,
        *,
        summary: str,
        start_to_close: timedelta | None = None,
        schedule_to_close: timedelta | None = None,
    ) -> Out:
        """Run a forward step.

        Raises:
            asyncio.CancelledError: the attempt was stopped meanwhile.
            ActivityError: the step failed.
        """
        return await run_step(
            step,
            arg,
            summary=summary,
            start_to_close=start_to_close,
            schedule_to_close=schedule_to_close,
            is_stopped=self.is_stopped,
        )

    async def commit(self, step: Step[In, Out], arg: In, *, summary: str) -> Out:
        """Run the step that passes the point of no return; a result in spite of a cancel counts.

        Raises:
            asyncio.CancelledError: the attempt was stopped and the step did not succeed.
            ActivityError: the step failed.
        """
        try:
            done = await run_step(step, arg, summary=summary)
        except ActivityError as error:
            if self.is_stopped():
                raise asyncio.CancelledError from error
            raise
        self.past_return = True
        return done

    async def insist(
        self, step: Step[In, Out], arg: In, *, summary: str, is_hopeless: Callable[[Failure], bool] = lambda _: False
    ) -> Out:
        """Run a step; past the point of no return until it succeeds, with Stalled=True while it fails.

        Raises:
            asyncio.CancelledError: the attempt was stopped meanwhile.
            ActivityError: the step failed before the point of no return.
            HistoryFull: it failed for so long that the server asks for a new history.
            GivenUp: ``is_hopeless`` said so of its failure.
        """
        pause = _FIRST_PAUSE_SECONDS
        while True:
            limit = step.start_to_close + _SPARE_TIME if self.past_return else None
            try:
                done = await self.take(step, arg, summary=summary, schedule_to_close=limit)
            except ActivityError as error:
                if not self.past_return:
                    raise
                failure = explain(error)
                self.report(stalled=True, failure=failure)
                if is_hopeless(failure):
                    raise GivenUp from error
                if workflow.info().is_continue_as_new_suggested():
                    raise HistoryFull from error
                await workflow.sleep(pause, summary=f"pause before {step.name} is tried again")
                pause = min(2 * pause, _LONGEST_PAUSE_SECONDS)
            else:
                if self.facts.stalled:
                    self.report(stalled=False, failure=None)
                return done

    def ask_to_settle(self, record: m.ServingRecord) -> m.Settle:
        """Give the request to let front Service, record and autoscaler follow the release of ``record``."""
        return m.Settle(
            ref=self.ref,
            base=self.base,
            policy=self.desired.policy,
            record=record,
            spec=self.desired.spec,
            release_name=record.release,
        )

    def note(self, **found: Any) -> None:
        """Remember facts; they are told with the next report."""
        self.facts = self.facts.model_copy(update=found)

    def enter(self, phase: Phase) -> None:
        """Report that ``phase`` begins."""
        self.report(phase=phase)

    def report(self, **found: Any) -> None:
        """Tell the reporter, Temporal's visibility and the run's memo how things stand."""
        self.note(**found)
        self._seq += 1
        info, now = workflow.info(), workflow.now()
        report = build_report(self.desired, self.facts, info.run_id, now.timestamp(), self._seq)
        workflow.set_current_details(describe_run(self.desired, self.facts, now))
        workflow.upsert_memo({"identity": self.desired.identity, "report": report})
        shown = (self.facts.phase, self.desired.generation)
        if shown != self._shown:
            workflow.upsert_search_attributes([_PHASE.value_set(shown[0].value), _GENERATION.value_set(shown[1])])
            self._shown = shown
        self.outbox.post("report", report)

    def adopt(self, desired: Desired) -> None:
        """Take a change that needs no other pods; what has not run yet reads it."""
        self.desired = desired
        self.report()
