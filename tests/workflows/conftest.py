"""The Temporal dev server with workers on every queue: real workflow code, step doubles."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from datetime import timedelta
from pathlib import Path

import pytest
from temporalio.common import SearchAttributeKey
from temporalio.contrib.pydantic import pydantic_data_converter
from temporalio.testing import WorkflowEnvironment
from temporalio.worker import Worker

from activities.boundary import Boundary
from plnt.settings import ControlSettings
from plnt.steps import Queue
from tests.fakes.report_log import ReportLog
from tests.fakes.rollouts import Rollouts
from tests.fakes.steps import FakeSteps
from workflows.__main__ import build_worker, sandbox

TEMPORAL = Path(__file__).parents[2] / ".venv/bin/temporal"
SEARCH_ATTRIBUTES = [
    *(SearchAttributeKey.for_keyword(f"Plnt{name}") for name in ("Phase", "Namespace", "Model", "Runtime", "GpuClass")),
    SearchAttributeKey.for_int("PlntGeneration"),
]
LOG_QUEUE = "test-report-log"


@pytest.fixture(scope="session")
async def rollouts() -> AsyncIterator[Rollouts]:
    """Every queue served, on a server of its own."""
    fakes = FakeSteps()
    async with (
        await WorkflowEnvironment.start_local(
            data_converter=pydantic_data_converter,
            dev_server_existing_path=str(TEMPORAL),
            search_attributes=SEARCH_ATTRIBUTES,
        ) as env,
        AsyncExitStack() as stack,
    ):
        quick = timedelta(milliseconds=100)
        for queue in Queue:
            if activities := fakes.activities(queue):
                worker = Worker(
                    env.client,
                    task_queue=queue,
                    activities=activities,
                    interceptors=[Boundary()],
                    max_heartbeat_throttle_interval=quick,
                    default_heartbeat_throttle_interval=quick,
                )
                await stack.enter_async_context(worker)
        await stack.enter_async_context(build_worker(env.client, ControlSettings()))
        await stack.enter_async_context(
            Worker(env.client, task_queue=LOG_QUEUE, workflows=[ReportLog], workflow_runner=sandbox())
        )
        yield Rollouts(env.client, fakes, LOG_QUEUE)
