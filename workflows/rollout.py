"""The rollout of one WorkflowRun: one run per attempt at one generation, the newest generation wins."""

import asyncio
from contextlib import suppress
from datetime import timedelta
from typing import NoReturn

from temporalio import workflow
from temporalio.exceptions import ActivityError, ApplicationError, FailureError

from plnt.errors import PlntError, RollbackIncomplete, SpecInvalid
from plnt.model import messages as m
from plnt.model import names
from plnt.model.desired import Desired, Loaded, Policy, Ref
from plnt.model.pursuit import Pursuit, compare
from plnt.model.reports import Failure
from plnt.model.revision import revision
from plnt.model.status import Phase
from plnt.steps import LOAD_DESIRED
from workflows.attempt import Attempt, GivenUp, HistoryFull
from workflows.deploying import deploy
from workflows.holding import hold, hold_promotion
from workflows.outbox import Outbox
from workflows.promoting import follow, promote
from workflows.run_step import INTERNAL_ERROR, explain, run_step
from workflows.smoke_testing import smoke_test
from workflows.teardown import remove_everything, tear_down
from workflows.validating import is_in_place, pull_weights, release_of, resolve, validate


async def roll_out(attempt: Attempt) -> None:
    """Bring one generation to Ready, phase by phase."""
    await validate(attempt)
    if is_in_place(attempt):
        await hold(attempt)
        record = attempt.world.record
        await follow(attempt, record.tree if record else "")
        return
    gpu_class, plan = await resolve(attempt)
    await hold(attempt)
    tree = await pull_weights(attempt, plan)
    spec = attempt.desired.spec
    chart, values = attempt.world.chart_versions.get(spec.runtime, ""), attempt.world.values
    found = revision(spec, attempt.desired.options, tree.digest, chart, values.digest if values else "")
    if found == attempt.stable_revision:
        await hold(attempt)
        await follow(attempt, tree.digest)
        return
    attempt.note(revision=found, release=release_of(attempt, found))
    await hold(attempt)
    await deploy(attempt, gpu_class, tree)
    await hold(attempt)
    await smoke_test(attempt)
    await hold_promotion(attempt)
    await promote(attempt, tree)


@workflow.defn(name="Rollout")
class Rollout:
    """Signals only say "look": the WorkflowRun itself is read again by a step."""

    def __init__(self) -> None:
        self._changed = False
        self._granted = False

    @workflow.signal(description="Look at the WorkflowRun again")
    def desired_changed(self) -> None:
        """Note that the WorkflowRun may have changed; takes no input, so that a bare signal cannot wedge the run."""
        self._changed = True

    @workflow.signal(description="The line's lease for this run")
    def granted(self, run_id: str = "") -> None:
        """Note the lease, if it is for this very run."""
        self._granted = self._granted or run_id == workflow.info().run_id

    @workflow.run
    async def run(self) -> None:
        """Roll out, or take down, what the WorkflowRun asks for now.

        Raises:
            ApplicationError: the generation ended RolledBack or Failed; the type is the reason.
            asyncio.CancelledError: a person cancelled; everything of this attempt was undone.
        """
        ref = _read_ref()
        outbox = Outbox(names.reporter_id(ref.namespace, ref.name))
        loaded = await self._load_first(ref)
        if loaded.desired is None:
            await self._clear(ref, loaded.policy, outbox)
            return
        desired = loaded.desired
        attempt = Attempt(ref, desired, outbox, lambda: self._granted)
        failure = await self._pursue(attempt)
        incomplete = await self._undo(attempt, failure)
        _report_end(attempt, failure, incomplete)
        await outbox.drain()
        await self._recheck(attempt)
        _close(attempt, incomplete or failure)

    async def _load_first(self, ref: Ref) -> Loaded:
        """Read the WorkflowRun even if a person cancelled before: else nobody could be told that it was cancelled."""
        try:
            return await self._load(ref)
        except asyncio.CancelledError:
            return await self._load(ref)

    async def _load(self, ref: Ref) -> Loaded:
        """Read the WorkflowRun; a poke whose reading was cancelled still counts."""
        self._changed = False
        try:
            return await run_step(LOAD_DESIRED, m.Target(ref=ref), summary="read the WorkflowRun")
        except asyncio.CancelledError:
            self._changed = True
            raise

    async def _clear(self, ref: Ref, policy: Policy, outbox: Outbox) -> None:
        """Take down what a WorkflowRun left that went without a teardown, then look at pokes once more.

        Raises:
            ApplicationError: RollbackIncomplete, with what could not be taken down.
        """
        outbox.post("gone", "")
        try:
            await remove_everything(run_step, ref, policy)
        except ActivityError as error:
            text = f"the WorkflowRun is gone, and what it left cannot be taken down: {explain(error)}"
            raise ApplicationError(text, type=RollbackIncomplete.__name__, non_retryable=True) from error
        finally:
            await outbox.drain()
        if self._changed:
            _continue()

    async def _pursue(self, attempt: Attempt) -> Failure | None:
        """Run the body until it ends or is stopped, and give what it failed with."""
        body = asyncio.create_task(tear_down(attempt) if attempt.desired.deleting else roll_out(attempt))
        while not body.done() and not attempt.is_stopped():
            # A cancel of the run ends this wait once; whether it ends the body is for `is_stopped` to say.
            with suppress(asyncio.CancelledError):
                await self._watch(attempt, body)
        if not body.done():
            body.cancel()
        await _outlast(body)
        return _failure_of(body, attempt)

    async def _watch(self, attempt: Attempt, body: "asyncio.Task[None]") -> None:
        """Compare the WorkflowRun with what the body works on at every poke, until one of them ends the body."""
        while not attempt.is_stopped():
            await workflow.wait_condition(lambda: body.done() or self._changed)
            if body.done():
                return
            seen = await self._look(attempt)
            pursuit = compare(attempt.desired, seen)
            if pursuit is Pursuit.SUPERSEDE or (pursuit is Pursuit.IN_PLACE and body.done()):
                attempt.supersede(seen)
            elif pursuit is Pursuit.IN_PLACE and seen is not None:
                attempt.adopt(seen)

    async def _look(self, attempt: Attempt) -> Desired | None:
        """Read the WorkflowRun; one that cannot be read is taken as unchanged."""
        try:
            return (await self._load(attempt.ref)).desired
        except ActivityError as error:
            workflow.logger.warning("WorkflowRun not read", extra={"reason": explain(error).reason})
            return attempt.desired

    async def _undo(self, attempt: Attempt, failure: Failure | None) -> Failure | None:
        """Undo what the attempt did; give RollbackIncomplete with both causes if that fails."""
        if not attempt.undos.pending:
            return None
        deployed = attempt.undos.deployed
        attempt.report(undoing=True, failure=failure)
        deadline = timedelta(seconds=attempt.desired.policy.undo_deadline_seconds)
        undoing = asyncio.create_task(
            attempt.undos.run(deadline, lambda left: attempt.report(stalled=True, failure=left))
        )
        await self._watch_undo(attempt, undoing)
        attempt.note(undoing=False, undone=deployed, stalled=False, failure=failure)
        left = None if undoing.cancelled() else undoing.result()
        if left is None:
            return None
        first = f"; undone because of {failure}" if failure else ""
        return Failure(reason=RollbackIncomplete.__name__, message=f"{left.message}{first}")

    async def _watch_undo(self, attempt: Attempt, undoing: "asyncio.Task[Failure | None]") -> None:
        """Wait until the undo ends; only a deletion that skips its teardown cuts it short."""
        while not undoing.done():
            with suppress(asyncio.CancelledError):
                await workflow.wait_condition(lambda: undoing.done() or self._changed)
                seen = attempt.desired if undoing.done() else await self._look(attempt)
                if compare(attempt.desired, seen) is not Pursuit.SAME:
                    attempt.supersede(seen)
                if seen is not None and seen.deleting and seen.options.skip_teardown:
                    undoing.cancel()
                    await _outlast(undoing)

    async def _recheck(self, attempt: Attempt) -> None:
        """Look once more at pokes that came while the attempt ended: the server lets no run close over them."""
        while self._changed and not attempt.superseded:
            seen = await self._look(attempt)
            if compare(attempt.desired, seen) is not Pursuit.SAME:
                attempt.supersede(seen)


def _continue() -> NoReturn:
    """Begin anew with an empty history; where workers are versioned, on the version that is current now."""
    workflow.continue_as_new(initial_versioning_behavior=workflow.ContinueAsNewVersioningBehavior.AUTO_UPGRADE)


def _read_ref() -> Ref:
    """Read the WorkflowRun's name from the workflow ID; a run under any other ID could only hang."""
    try:
        namespace, name = names.parse_workflow_id(workflow.info().workflow_id)
    except ValueError as error:
        raise ApplicationError(str(error), type=SpecInvalid.__name__, non_retryable=True) from error
    return Ref(namespace=namespace, name=name)


def _report_end(attempt: Attempt, failure: Failure | None, incomplete: Failure | None) -> None:
    cancelled = failure is None and workflow.cancellation_reason() is not None
    if attempt.facts.phase is Phase.READY or attempt.superseded or not (failure or cancelled):
        return
    undone = (attempt.facts.undone or cancelled) and incomplete is None
    attempt.report(
        phase=Phase.ROLLED_BACK if undone else Phase.FAILED, failure=incomplete or failure, cancelled=cancelled
    )


def _close(attempt: Attempt, failure: Failure | None) -> None:
    if attempt.superseded:
        _continue()
    if failure is not None:
        raise ApplicationError(failure.message, type=failure.reason, non_retryable=True)
    if workflow.cancellation_reason() is not None:
        raise asyncio.CancelledError


async def _outlast(task: "asyncio.Task[object]") -> None:
    """Wait until ``task`` ends, whatever is asked of the run meanwhile."""
    while not task.done():
        with suppress(asyncio.CancelledError):
            await workflow.wait_condition(task.done)


def _failure_of(body: "asyncio.Task[None]", attempt: Attempt) -> Failure | None:
    """Give what the body failed with; a body that was stopped did not fail, and a bug stays an exception.

    One that only needs a new history is superseded by itself: what it was about stands in the cluster. So is one
    whose pods went away after they were promoted while a newer generation waits.
    """
    if body.cancelled():
        return None if attempt.is_stopped() else Failure(reason=INTERNAL_ERROR, message="a step was cancelled")
    error = body.exception()
    if error is None:
        return None
    if isinstance(error, HistoryFull | GivenUp):
        attempt.superseded = True
        return None
    if isinstance(error, FailureError | PlntError):
        return explain(error)
    raise error
