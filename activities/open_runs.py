"""What Temporal says of a workflow's runs: which is the newest, and whether one is still open."""

from datetime import UTC, datetime, timedelta

from temporalio import activity
from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.enums.v1 import WorkflowExecutionStatus
from temporalio.api.workflow.v1 import WorkflowExecutionInfo
from temporalio.api.workflowservice.v1 import DescribeWorkflowExecutionRequest
from temporalio.service import RPCError, RPCStatusCode

RPC_TIMEOUT = timedelta(seconds=10)
"""Longest wait for the answer, retries included: without one a silent server would hold the step to its own limit."""
_OPEN = frozenset(
    {
        WorkflowExecutionStatus.WORKFLOW_EXECUTION_STATUS_RUNNING,
        WorkflowExecutionStatus.WORKFLOW_EXECUTION_STATUS_PAUSED,
    }
)


async def fetch_run(workflow_id: str, run_id: str = "") -> WorkflowExecutionInfo:
    """Fetch what Temporal says of a run, the workflow's newest one if none is named.

    Asks the raw service, as the SDK's describe fails on a paused workflow.

    Raises:
        RPCError: Temporal does not answer, or knows no such run.
    """
    client = activity.client()
    request = DescribeWorkflowExecutionRequest(
        namespace=client.namespace, execution=WorkflowExecution(workflow_id=workflow_id, run_id=run_id)
    )
    answer = await client.workflow_service.describe_workflow_execution(request, retry=True, timeout=RPC_TIMEOUT)
    return answer.workflow_execution_info


async def find_closed(workflow_id: str, run_id: str = "") -> datetime | None:
    """Give when a run closed, the workflow's newest one if none is named; none = it is open.

    One that is not known closed long ago.
    """
    try:
        info = await fetch_run(workflow_id, run_id)
    except RPCError as error:
        if error.status is RPCStatusCode.NOT_FOUND:
            return datetime.fromtimestamp(0, UTC)
        raise
    return None if info.status in _OPEN else info.close_time.ToDatetime(UTC)
