"""The one place where workflow code calls an activity."""

from temporalio import workflow

from plnt.steps import In, Out, Step


async def run_step(step: Step[In, Out], arg: In, *, summary: str = "") -> Out:
    """Run ``step`` on its own queue and give its typed result.

    Raises:
        ActivityError: the step failed for good, or was cancelled.
    """
    result: Out = await workflow.execute_activity(
        step.name,
        arg,
        result_type=step.gives,
        activity_id=step.name,
        task_queue=step.queue,
        start_to_close_timeout=step.start_to_close,
        schedule_to_close_timeout=step.schedule_to_close,
        heartbeat_timeout=step.heartbeat,
        retry_policy=step.retry,
        cancellation_type=(
            workflow.ActivityCancellationType.WAIT_CANCELLATION_COMPLETED
            if step.wait_cancel
            else workflow.ActivityCancellationType.TRY_CANCEL
        ),
        summary=summary or step.name,
    )
    return result
