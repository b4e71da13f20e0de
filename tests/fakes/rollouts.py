"""What a test does with rollouts: start, poke, cancel, wait, and look at what was reported."""

import asyncio
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.enums.v1 import EventType
from temporalio.api.workflowservice.v1 import ResetWorkflowExecutionRequest
from temporalio.client import Client, WorkflowExecutionStatus, WorkflowFailureError, WorkflowHandle
from temporalio.common import SearchAttributeKey, WorkflowIDConflictPolicy, WorkflowIDReusePolicy
from temporalio.contrib.pydantic import pydantic_data_converter
from temporalio.testing import WorkflowEnvironment
from temporalio.worker import Worker

from activities.boundary import Boundary
from plnt.model import names
from plnt.model.desired import Desired
from plnt.model.status import PhaseReport, Progress
from plnt.settings import ControlSettings
from plnt.steps import Queue
from tests.fakes.report_log import ReportLog
from tests.fakes.steps import NAMESPACE, FakeSteps, LostAnswers, SmallWorld
from workflows.__main__ import build_worker, sandbox

TEMPORAL = Path(sys.executable).with_name("temporal")
SEARCH_ATTRIBUTES: list[SearchAttributeKey[Any]] = [
    *(SearchAttributeKey.for_keyword(f"Plnt{name}") for name in ("Phase", "Namespace", "Model", "Runtime", "GpuClass")),
    SearchAttributeKey.for_int("PlntGeneration"),
]
LOG_QUEUE = "test-report-log"
PATIENCE_SECONDS = 60
"""Longest wait for anything: dozens of rollouts share the machine."""


@dataclass
class Ended:
    """How a run closed, and what it said."""

    status: WorkflowExecutionStatus
    reason: str
    phases: list[str]
    last: PhaseReport


@dataclass
class Rollouts:
    """A Temporal server with step doubles behind every queue."""

    client: Client
    fakes: FakeSteps

    def world(self, name: str) -> SmallWorld:
        """The world of one WorkflowRun."""
        return self.fakes.worlds[name]

    async def poke(self, name: str, desired: Desired | None = None) -> WorkflowHandle[Any, Any]:
        """Do what the bridge does: open the reporter, then signal-with-start."""
        if desired is not None:
            self.world(name).desired = desired
        await self.client.start_workflow(
            "ReportLog",
            id=names.reporter_id(NAMESPACE, name),
            task_queue=LOG_QUEUE,
            id_conflict_policy=WorkflowIDConflictPolicy.USE_EXISTING,
        )
        return await self.client.start_workflow(
            "Rollout",
            id=names.rollout_id(NAMESPACE, name),
            task_queue=Queue.CONTROL,
            id_conflict_policy=WorkflowIDConflictPolicy.USE_EXISTING,
            id_reuse_policy=WorkflowIDReusePolicy.ALLOW_DUPLICATE,
            start_signal="desired_changed",
        )

    def handle(self, name: str) -> WorkflowHandle[Any, Any]:
        """The newest run."""
        return self.client.get_workflow_handle(names.rollout_id(NAMESPACE, name))

    async def roll_out(self, name: str, desired: Desired | None = None) -> Ended:
        """Poke and wait until the run closes."""
        await self.poke(name, desired)
        return await self.wait(name)

    async def wait(self, name: str) -> Ended:
        """Wait until the newest run closes, continued runs included."""
        reason = ""
        try:
            await asyncio.wait_for(self.handle(name).result(), PATIENCE_SECONDS)
        except WorkflowFailureError as error:
            reason = getattr(error.cause, "type", None) or type(error.cause).__name__
        status = (await self.handle(name).describe()).status
        assert status is not None
        reports = await self.reports(name)
        phases = [one.phase.value for one in reports]
        return Ended(status, reason, [p for i, p in enumerate(phases) if i == 0 or phases[i - 1] != p], reports[-1])

    async def reports(self, name: str) -> list[PhaseReport]:
        """What the reporter was told, in order."""
        return await self._log(name).query(ReportLog.reports)

    async def words(self, name: str) -> list[Progress]:
        """The words of progress that the reporter was told."""
        return await self._log(name).query(ReportLog.words)

    async def uids_gone(self, name: str) -> list[str]:
        """The uids that the reporter was told are gone."""
        return await self._log(name).query(ReportLog.uids_gone)

    def _log(self, name: str) -> WorkflowHandle[Any, Any]:
        return self.client.get_workflow_handle(names.reporter_id(NAMESPACE, name))

    async def wait_entered(self, name: str, step: str) -> None:
        """Wait until the faulty ``step`` is under way."""
        await asyncio.wait_for(self.world(name).faults[step].entered.wait(), PATIENCE_SECONDS)

    async def wait_generation(self, name: str, generation: int) -> None:
        """Wait until the run reports about ``generation``."""
        await self.wait_report(name, lambda one: one.generation == generation)

    async def wait_observed(self, name: str, options_digest: str) -> None:
        """Wait until the run reports that it works on these options."""
        await self.wait_report(name, lambda one: one.observed_options == options_digest)

    async def wait_report(self, name: str, holds: Callable[[PhaseReport], bool]) -> PhaseReport:
        """Wait until some report is as asked; gives the first such one."""
        async with asyncio.timeout(PATIENCE_SECONDS):
            while True:
                for report in await self.reports(name):
                    if holds(report):
                        return report
                await asyncio.sleep(0.05)

    async def wait_word(self, name: str, message: str) -> None:
        """Wait until the line tells the reporter ``message``."""
        async with asyncio.timeout(PATIENCE_SECONDS):
            while True:
                if any(word.message == message for word in await self.words(name)):
                    return
                await asyncio.sleep(0.05)

    async def reset(self, name: str) -> None:
        """Do what ``temporal workflow reset -t FirstWorkflowTask`` does."""
        handle = self.handle(name)
        history = await handle.fetch_history()
        first = next(
            event.event_id
            for event in history.events
            if event.event_type == EventType.EVENT_TYPE_WORKFLOW_TASK_COMPLETED
        )
        await self.client.workflow_service.reset_workflow_execution(
            ResetWorkflowExecutionRequest(
                namespace=self.client.namespace,
                workflow_execution=WorkflowExecution(workflow_id=handle.id, run_id=(await handle.describe()).run_id),
                reason="retry",
                workflow_task_finish_event_id=first,
                request_id=f"{handle.id}-reset",
            )
        )

    async def wait_event(self, name: str, kind: "EventType.ValueType", *, run_id: str | None = None) -> None:
        """Wait until the run's history holds such an event."""
        handle = self.client.get_workflow_handle(names.rollout_id(NAMESPACE, name), run_id=run_id)
        async with asyncio.timeout(PATIENCE_SECONDS):
            async for event in handle.fetch_history_events(wait_new_event=True):
                if event.event_type == kind:
                    return

    async def count_events(self, name: str) -> int:
        """Events in the newest run's history."""
        return len((await self.handle(name).fetch_history()).events)

    async def summaries(self, name: str) -> list[str]:
        """The summary of every activity and timer of the newest run; empty text where there is none."""
        converter = self.client.data_converter
        found = []
        async for event in self.handle(name).fetch_history_events():
            if event.event_type in (
                EventType.EVENT_TYPE_ACTIVITY_TASK_SCHEDULED,
                EventType.EVENT_TYPE_TIMER_STARTED,
            ):
                payload = event.user_metadata.summary
                found.append((await converter.decode([payload]))[0] if payload.data else "")
        return found


@asynccontextmanager
async def running_rollouts(*settings: ControlSettings, server: Sequence[str] = ()) -> AsyncIterator[Rollouts]:
    """Real workflow code on a Temporal server of its own, step doubles on every other queue.

    One workflow worker for each of ``settings``; none given = one with the defaults. ``server`` is dynamic
    configuration, each ``key=value``.
    """
    fakes = FakeSteps()
    environment = await WorkflowEnvironment.start_local(
        data_converter=pydantic_data_converter,
        dev_server_existing_path=str(TEMPORAL),
        dev_server_extra_args=[part for value in server for part in ("--dynamic-config-value", value)],
        search_attributes=SEARCH_ATTRIBUTES,
    )
    async with environment as env, AsyncExitStack() as stack:
        workers = [_serve_steps(env.client, fakes, queue) for queue in Queue if fakes.activities(queue)]
        workers += [build_worker(env.client, one) for one in settings or (ControlSettings(),)]
        workers.append(Worker(env.client, task_queue=LOG_QUEUE, workflows=[ReportLog], workflow_runner=sandbox()))
        for worker in workers:
            await stack.enter_async_context(worker)
        yield Rollouts(env.client, fakes)


def _serve_steps(client: Client, fakes: FakeSteps, queue: Queue) -> Worker:
    quick = timedelta(milliseconds=100)
    return Worker(
        client,
        task_queue=queue,
        activities=fakes.activities(queue),
        interceptors=[Boundary(), LostAnswers(fakes)],
        max_heartbeat_throttle_interval=quick,
        default_heartbeat_throttle_interval=quick,
    )
