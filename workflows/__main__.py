"""``python -m workflows``: run workflow code."""

import asyncio
import os
import sys
from contextlib import AsyncExitStack

from temporalio.client import Client
from temporalio.worker import Worker
from temporalio.worker.workflow_sandbox import SandboxedWorkflowRunner, SandboxRestrictions

from plnt import telemetry
from plnt.clients import temporal
from plnt.clients.health import serve_health
from plnt.clients.worker import run_workers, stop_event
from plnt.settings import ControlSettings, SettingsInvalid
from plnt.steps import Queue
from workflows.gpu_pool import GpuPool
from workflows.rollout import Rollout


def sandbox() -> SandboxedWorkflowRunner:
    """Give the runner that workflow code runs in; the models are loaded once, not per workflow."""
    return SandboxedWorkflowRunner(
        restrictions=SandboxRestrictions.default.with_passthrough_modules("plnt", "pydantic")
    )


def build_worker(client: Client, settings: ControlSettings) -> Worker:
    """Give the worker for workflow tasks; it runs no activities."""
    return Worker(
        client,
        task_queue=Queue.CONTROL,
        workflows=[Rollout, GpuPool],
        workflow_runner=sandbox(),
        max_concurrent_workflow_tasks=settings.workflow_slots,
    )


async def serve(settings: ControlSettings) -> None:
    """Serve workflow tasks until the process is told to stop."""
    client = await temporal.connect(telemetry.start_runtime(settings), telemetry.start_tracing())
    stop = stop_event()
    async with AsyncExitStack() as stack:
        worker = build_worker(client, settings)
        await stack.enter_async_context(
            serve_health(
                settings.listen_host,
                settings.health_port,
                alive=lambda: "",
                ready=lambda: "" if worker.is_running else "the worker does not poll yet",
            )
        )
        await run_workers([worker], stop)


def main() -> int:
    """Run the command."""
    try:
        settings = ControlSettings.read(os.environ)
    except SettingsInvalid as error:
        print(f"wrong settings:\n{error}", file=sys.stderr)
        return 2
    telemetry.start_logging(settings)
    asyncio.run(serve(settings))
    return 0


if __name__ == "__main__":
    sys.exit(main())
