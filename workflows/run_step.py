"""The one place where workflow code calls an activity, and the one that reads why an activity failed."""

import asyncio
from collections.abc import Callable
from datetime import timedelta

from temporalio import exceptions, workflow
from temporalio.common import RetryPolicy
from temporalio.exceptions import ActivityError, ApplicationError
from temporalio.workflow import ActivityCancellationType

from plnt.errors import PlntError, StepTimeout
from plnt.model.reports import Failure
from plnt.steps import In, Out, Step

INTERNAL_ERROR = "InternalError"
"""Reason of a failure that is plnt's own bug."""


def never_stopped() -> bool:
    """Say that nothing stops this step: the check of undo steps and of work that belongs to no attempt."""
    return False


async def run_step(
    step: Step[In, Out],
    arg: In,
    *,
    summary: str,
    start_to_close: timedelta | None = None,
    schedule_to_close: timedelta | None = None,
    retry: RetryPolicy | None = None,
    is_stopped: Callable[[], bool] = never_stopped,
) -> Out:
    """Run ``step`` on its queue and give its typed result; the activity's ID is the step's name.

    The limits are the step's own where none are given.

    Raises:
        asyncio.CancelledError: ``is_stopped`` holds when the step ends. An activity may end well in spite of
            a cancel, and the caller would go on with its next step.
        ActivityError: the step failed; `explain` says why.
    """
    wait = step.wait_cancel
    try:
        result: Out = await workflow.execute_activity(
            step.name,
            arg,
            result_type=step.gives,
            task_queue=step.queue,
            activity_id=step.name,
            summary=summary,
            start_to_close_timeout=start_to_close or step.start_to_close,
            schedule_to_close_timeout=schedule_to_close or step.schedule_to_close,
            heartbeat_timeout=step.heartbeat,
            retry_policy=retry or step.retry,
            cancellation_type=ActivityCancellationType.WAIT_CANCELLATION_COMPLETED
            if wait
            else ActivityCancellationType.TRY_CANCEL,
        )
    except ActivityError as error:
        if is_stopped() or isinstance(error.cause, exceptions.CancelledError):
            raise asyncio.CancelledError from error
        raise
    if is_stopped():
        raise asyncio.CancelledError
    return result


def explain(error: BaseException) -> Failure:
    """Give reason and message of what a step or a phase failed with.

    A step that ran out of time carries its last attempt's failure as the cause, so the deepest plnt reason counts.
    """
    if isinstance(error, PlntError):
        return Failure(reason=error.reason, message=str(error))
    found: ApplicationError | None = None
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, ApplicationError):
            found = cause
        cause = cause.__cause__
    if found is not None:
        return Failure(reason=found.type or INTERNAL_ERROR, message=found.message)
    if isinstance(error, ActivityError) and isinstance(error.cause, exceptions.TimeoutError):
        limit = error.cause.type.name.lower().replace("_", "-") if error.cause.type else "time"
        return Failure(
            reason=StepTimeout.__name__,
            message=f"step {error.activity_id} passed its {limit} limit: see whether its pool runs",
        )
    return Failure(reason=INTERNAL_ERROR, message=f"{type(error).__name__}; see the worker's log")
