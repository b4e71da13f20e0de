"""The bridge's calls to Temporal: start, signal and describe the workflows of a WorkflowRun."""

from collections.abc import Awaitable
from contextlib import suppress
from datetime import timedelta
from typing import TypeVar

from temporalio.api.common.v1 import Payload, WorkflowExecution
from temporalio.api.enums.v1 import WorkflowExecutionStatus
from temporalio.api.workflowservice.v1 import DescribeWorkflowExecutionRequest, ListWorkflowExecutionsRequest
from temporalio.client import Client
from temporalio.common import (
    SearchAttributeKey,
    SearchAttributePair,
    TypedSearchAttributes,
    WorkflowIDConflictPolicy,
    WorkflowIDReusePolicy,
)
from temporalio.exceptions import TemporalError
from temporalio.service import RPCError, RPCStatusCode

from plnt.model import names
from plnt.model.poke import Key, LatestRun, RunState, Seen
from plnt.model.status import Phase, PhaseReport
from plnt.steps import Queue

_T = TypeVar("_T")

RPC_TIMEOUT = timedelta(seconds=10)
MAX_SUMMARY_BYTES = 200
"""Longest summary of a workflow: the server refuses more than 400 bytes, its payload's quotes included."""
MAX_KEYWORD_CHARS = 255
"""Longest value that every visibility store keeps of a Keyword."""

_OPEN = "WorkflowType IN ('StatusReporter', 'Rollout') AND CloseTime IS NULL"
_STATES = {
    WorkflowExecutionStatus.WORKFLOW_EXECUTION_STATUS_COMPLETED: RunState.CLOSED,
    WorkflowExecutionStatus.WORKFLOW_EXECUTION_STATUS_FAILED: RunState.CLOSED,
    WorkflowExecutionStatus.WORKFLOW_EXECUTION_STATUS_CANCELED: RunState.CLOSED,
    WorkflowExecutionStatus.WORKFLOW_EXECUTION_STATUS_TERMINATED: RunState.LOST,
    WorkflowExecutionStatus.WORKFLOW_EXECUTION_STATUS_TIMED_OUT: RunState.LOST,
}
"""Any other status, a paused run's included, is of an open run."""


class Runs:
    """The workflows of WorkflowRuns, by namespace and name.

    Every method raises RPCError when Temporal does not take the call, and may be called again.
    """

    def __init__(
        self, client: Client, *, rollout_queue: str = Queue.CONTROL, reporter_queue: str = Queue.BRIDGE
    ) -> None:
        """Start rollouts and reporters on these queues."""
        self._client = client
        self._rollout_queue = rollout_queue
        self._reporter_queue = reporter_queue

    async def open_reporter(self, seen: Seen, report: PhaseReport | None) -> None:
        """Make sure that the status reporter runs, and send it ``report``."""
        await self._client.start_workflow(
            "StatusReporter",
            id=names.reporter_id(seen.namespace, seen.name),
            task_queue=self._reporter_queue,
            id_conflict_policy=WorkflowIDConflictPolicy.USE_EXISTING,
            id_reuse_policy=WorkflowIDReusePolicy.ALLOW_DUPLICATE,
            start_signal=None if report is None else "report",
            start_signal_args=[] if report is None else [report],
            static_summary=_clip(f"status of {seen.namespace}/{seen.name}"),
            rpc_timeout=RPC_TIMEOUT,
        )

    async def poke(self, seen: Seen) -> None:
        """Tell the rollout to look; the server starts it if none is open."""
        await self._client.start_workflow(
            "Rollout",
            id=names.rollout_id(seen.namespace, seen.name),
            task_queue=self._rollout_queue,
            id_conflict_policy=WorkflowIDConflictPolicy.USE_EXISTING,
            id_reuse_policy=WorkflowIDReusePolicy.ALLOW_DUPLICATE,
            start_signal="desired_changed",
            search_attributes=_search_attributes(seen),
            static_summary=_clip(f"{seen.model} on {seen.runtime}"),
            static_details=_details(seen),
            rpc_timeout=RPC_TIMEOUT,
        )

    async def wake(self, key: Key) -> None:
        """Tell an open rollout, if there is one, to look; starts none."""
        handle = self._client.get_workflow_handle(names.rollout_id(*key))
        await _unless_missing(handle.signal("desired_changed", rpc_timeout=RPC_TIMEOUT))

    async def tell_gone(self, key: Key, uid: str) -> None:
        """Tell the status reporter, if there is one, that the object with this uid is gone; an empty one: any."""
        handle = self._client.get_workflow_handle(names.reporter_id(*key))
        await _unless_missing(handle.signal("gone", uid, rpc_timeout=RPC_TIMEOUT))

    async def list_open(self) -> set[Key]:
        """List the WorkflowRuns that have an open reporter or rollout, paused ones included; by the raw service."""
        found: set[Key] = set()
        request = ListWorkflowExecutionsRequest(namespace=self._client.namespace, query=_OPEN)
        while True:
            answer = await self._client.workflow_service.list_workflow_executions(
                request, retry=True, timeout=RPC_TIMEOUT
            )
            for execution in answer.executions:
                with suppress(ValueError):
                    found.add(names.parse_workflow_id(execution.execution.workflow_id))
            if not answer.next_page_token:
                return found
            request.next_page_token = answer.next_page_token

    async def describe(self, seen: Seen) -> LatestRun:
        """Look up the newest run; by the raw service, because the SDK's own call fails on a paused workflow."""
        request = DescribeWorkflowExecutionRequest(
            namespace=self._client.namespace,
            execution=WorkflowExecution(workflow_id=names.rollout_id(seen.namespace, seen.name)),
        )
        try:
            answer = await self._client.workflow_service.describe_workflow_execution(
                request, retry=True, timeout=RPC_TIMEOUT
            )
        except RPCError as error:
            if error.status is RPCStatusCode.NOT_FOUND:
                return LatestRun(state=RunState.NONE)
            raise
        info = answer.workflow_execution_info
        return LatestRun(
            state=_STATES.get(info.status, RunState.OPEN),
            identity=await self._decode(info.memo.fields.get("identity"), str) or "",
            report=await self._decode(info.memo.fields.get("report"), PhaseReport),
        )

    async def _decode(self, payload: Payload | None, kind: type[_T]) -> _T | None:
        """Give what a memo holds; none when it is missing or was written in a form that is not known here."""
        if payload is None:
            return None
        try:
            (value,) = await self._client.data_converter.decode([payload], [kind])
        except (ValueError, TypeError, TemporalError):
            return None
        return value if isinstance(value, kind) else None


async def _unless_missing(call: Awaitable[None]) -> None:
    try:
        await call
    except RPCError as error:
        if error.status is not RPCStatusCode.NOT_FOUND:
            raise


def _search_attributes(seen: Seen) -> TypedSearchAttributes:
    words = {
        "PlntNamespace": seen.namespace,
        "PlntModel": seen.model,
        "PlntRuntime": seen.runtime,
        "PlntGpuClass": seen.gpu_class,
        "PlntPhase": Phase.PENDING.value,
    }
    pairs: list[SearchAttributePair[str] | SearchAttributePair[int]] = [
        SearchAttributePair(SearchAttributeKey.for_keyword(name), word[:MAX_KEYWORD_CHARS])
        for name, word in words.items()
        if word
    ]
    generation = SearchAttributePair(SearchAttributeKey.for_int("PlntGeneration"), seen.generation)
    return TypedSearchAttributes([*pairs, generation])


def _details(seen: Seen) -> str:
    return "\n".join(
        (
            f"* WorkflowRun `{seen.name}` in namespace `{seen.namespace}`",
            f"* model `{seen.model}` on `{seen.runtime}`, {seen.gpu} x `{seen.gpu_class}` a pod",
            f"* look: `kubectl -n {seen.namespace} describe workflowrun {seen.name}`",
            f"* cancel and undo: `temporal workflow cancel -w {names.rollout_id(seen.namespace, seen.name)}`",
        )
    )


def _clip(text: str) -> str:
    return text.encode()[:MAX_SUMMARY_BYTES].decode(errors="ignore")
