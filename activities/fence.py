"""The fence that keeps an overtaken attempt from changing the world."""

from temporalio import activity

from activities.open_runs import fetch_run
from plnt.errors import StaleRun


async def check_current_run() -> None:
    """Check, right before a change is committed, that this activity's run is still open and its workflow's newest.

    Raises:
        StaleRun: a newer run took over, or this one was terminated.
    """
    info = activity.info()
    newest = await fetch_run(info.workflow_id or "")
    if newest.execution.run_id != info.workflow_run_id:
        raise StaleRun(f"run {info.workflow_run_id} of {info.workflow_id} was overtaken by {newest.execution.run_id}")
    if newest.HasField("close_time"):
        raise StaleRun(f"run {info.workflow_run_id} of {info.workflow_id} has ended")
