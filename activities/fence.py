"""The fence that keeps an overtaken attempt from changing the world."""

from datetime import timedelta

from temporalio import activity
from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.workflowservice.v1 import DescribeWorkflowExecutionRequest

from plnt.errors import StaleRun

RPC_TIMEOUT = timedelta(seconds=10)
"""Longest wait for the answer, retries included: without one a silent server would hold the step to its own limit."""


async def check_current_run() -> None:
    """Check, right before a change is committed, that this activity's run is still open and its workflow's newest.

    Asks the raw service: the SDK's describe fails on a paused workflow.

    Raises:
        StaleRun: a newer run took over, or this one was terminated.
    """
    info = activity.info()
    client = activity.client()
    answer = await client.workflow_service.describe_workflow_execution(
        DescribeWorkflowExecutionRequest(
            namespace=client.namespace, execution=WorkflowExecution(workflow_id=info.workflow_id or "")
        ),
        retry=True,
        timeout=RPC_TIMEOUT,
    )
    newest = answer.workflow_execution_info
    if newest.execution.run_id != info.workflow_run_id:
        raise StaleRun(f"run {info.workflow_run_id} of {info.workflow_id} was overtaken by {newest.execution.run_id}")
    if newest.HasField("close_time"):
        raise StaleRun(f"run {info.workflow_run_id} of {info.workflow_id} has ended")
