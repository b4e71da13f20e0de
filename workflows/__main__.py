"""``python -m workflows``: run workflow code.

``python -m workflows register`` prepares the Temporal namespace, ``python -m workflows check`` tells what is missing.
"""

import argparse
import asyncio
import os
import sys
from collections.abc import Sequence

from temporalio.client import Client
from temporalio.common import WorkerDeploymentVersion
from temporalio.worker import Worker, WorkerDeploymentConfig
from temporalio.worker.workflow_sandbox import SandboxedWorkflowRunner, SandboxRestrictions

from plnt import telemetry
from plnt.clients import registration, temporal
from plnt.clients.health import serve_health
from plnt.clients.stopping import stop_event
from plnt.clients.worker import run_workers
from plnt.errors import PlntError
from plnt.settings import ControlSettings, SettingsInvalid
from plnt.steps import Queue
from workflows.gpu_pool import GpuPool
from workflows.janitor import Janitor, PinnedJanitor
from workflows.rollout import Rollout
from workflows.versioned import PinnedRollout, UpgradedGpuPool


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
        workflows=[PinnedRollout, UpgradedGpuPool, PinnedJanitor]
        if settings.worker_deployment
        else [Rollout, GpuPool, Janitor],
        workflow_runner=sandbox(),
        max_concurrent_workflow_tasks=settings.workflow_slots,
        deployment_config=_version(settings),
    )


def _version(settings: ControlSettings) -> WorkerDeploymentConfig | None:
    """Give the version that the server is to know this worker by, if its operator opted in."""
    if not settings.worker_deployment:
        return None
    version = WorkerDeploymentVersion(settings.worker_deployment, settings.worker_build)
    return WorkerDeploymentConfig(version=version, use_worker_versioning=True)


async def serve(settings: ControlSettings) -> None:
    """Serve workflow tasks until the process is told to stop."""
    workers: list[Worker] = []
    async with serve_health(settings.listen_host, settings.health_port, lambda: "", lambda: _polling(workers)):
        client = await temporal.connect(telemetry.start_runtime(settings), telemetry.start_tracing())
        stop = stop_event()
        workers.append(build_worker(client, settings))
        await run_workers(workers, stop)


def _polling(workers: Sequence[Worker]) -> str:
    if not workers:
        return "Temporal was not reached yet"
    return "" if workers[0].is_running else "the worker does not poll yet"


async def register() -> str:
    """Register the search attributes that are missing; says which."""
    added = await registration.register_search_attributes(await temporal.connect())
    return f"registered: {', '.join(added)}" if added else "all search attributes are registered"


async def check() -> str:
    """Say that everything is there.

    Raises:
        Incomplete: something is not; the message names all of it.
    """
    faults = await registration.find_faults(await temporal.connect())
    if faults:
        raise Incomplete("; ".join(faults))
    return "search attributes are registered and every task queue is polled"


class Incomplete(PlntError):
    """A rollout would wait: something is missing."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(prog="python -m workflows", description=__doc__)
    parser.add_argument("command", nargs="?", default="serve", choices=("serve", "register", "check"))
    command = parser.parse_args(arguments).command
    try:
        settings = ControlSettings.read(os.environ)
        telemetry.start_logging(settings)
        if command == "serve":
            asyncio.run(serve(settings))
        else:
            print(asyncio.run(register() if command == "register" else check()))
    except SettingsInvalid as error:
        print(f"wrong settings:\n{error}", file=sys.stderr)
        return 2
    except PlntError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    telemetry.end_process(main())
