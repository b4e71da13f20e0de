"""What an activity asks its Temporal client: which run of its workflow is the newest, and signals."""

from dataclasses import dataclass, field
from datetime import timedelta

from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.workflow.v1 import WorkflowExecutionInfo
from temporalio.api.workflowservice.v1 import DescribeWorkflowExecutionRequest, DescribeWorkflowExecutionResponse


@dataclass
class NewestRun:
    """The workflow service, for describe alone."""

    run_id: str

    async def describe_workflow_execution(
        self,
        request: DescribeWorkflowExecutionRequest,
        *,
        retry: bool = False,
        timeout: timedelta | None = None,  # noqa: ASYNC109 - as the real service names it
    ) -> DescribeWorkflowExecutionResponse:
        execution = WorkflowExecution(workflow_id=request.execution.workflow_id, run_id=self.run_id)
        return DescribeWorkflowExecutionResponse(workflow_execution_info=WorkflowExecutionInfo(execution=execution))


@dataclass
class SignalLog:
    """A workflow handle that notes signals."""

    signals: list[tuple[str, object]] = field(default_factory=list)

    async def signal(self, name: str, word: object, *, rpc_timeout: timedelta | None = None) -> None:
        self.signals.append((name, word))


@dataclass
class FakeTemporal:
    """A client that knows one workflow."""

    run_id: str
    namespace: str = "default"
    log: SignalLog = field(default_factory=SignalLog)

    @property
    def workflow_service(self) -> NewestRun:
        return NewestRun(self.run_id)

    def get_workflow_handle(self, workflow_id: str) -> SignalLog:
        return self.log
