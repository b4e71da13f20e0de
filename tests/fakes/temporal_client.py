"""What an activity asks its Temporal client: which run of its workflow is the newest, and signals."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import timedelta

from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.workflow.v1 import WorkflowExecutionInfo
from temporalio.api.workflowservice.v1 import DescribeWorkflowExecutionRequest, DescribeWorkflowExecutionResponse
from temporalio.service import RPCError, RPCStatusCode


@dataclass
class NewestRun:
    """The workflow service, for describe alone."""

    run_id: str
    meanwhile: list[Callable[[], Awaitable[object]]]

    async def describe_workflow_execution(
        self,
        request: DescribeWorkflowExecutionRequest,
        *,
        retry: bool = False,
        timeout: timedelta | None = None,  # noqa: ASYNC109 - as the real service names it
    ) -> DescribeWorkflowExecutionResponse:
        execution = WorkflowExecution(workflow_id=request.execution.workflow_id, run_id=self.run_id)
        if self.meanwhile:
            await self.meanwhile.pop(0)()
        return DescribeWorkflowExecutionResponse(workflow_execution_info=WorkflowExecutionInfo(execution=execution))


class SilentService:
    """The workflow service of a server that takes calls and never answers: a call ends with its time limit."""

    async def describe_workflow_execution(
        self,
        request: DescribeWorkflowExecutionRequest,
        *,
        retry: bool = False,
        timeout: timedelta | None = None,  # noqa: ASYNC109 - as the real service names it
    ) -> DescribeWorkflowExecutionResponse:
        try:
            async with asyncio.timeout(None if timeout is None else timeout.total_seconds()):
                await asyncio.Event().wait()
        except TimeoutError:
            raise RPCError("Timeout expired", RPCStatusCode.CANCELLED, b"") from None
        raise AssertionError("nobody answers")


@dataclass
class SilentTemporal:
    """A client of such a server."""

    namespace: str = "default"
    workflow_service: SilentService = field(default_factory=SilentService)


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
    meanwhile: list[Callable[[], Awaitable[object]]] = field(default_factory=list)
    """What others do between an answer and what is made of it, one for each answer."""

    @property
    def workflow_service(self) -> NewestRun:
        return NewestRun(self.run_id, self.meanwhile)

    def get_workflow_handle(self, workflow_id: str) -> SignalLog:
        return self.log
