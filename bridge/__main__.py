"""``python -m bridge``: turn WorkflowRuns into workflows, and their reports into status."""

import asyncio
import os
import socket
import sys
from collections.abc import Sequence
from datetime import timedelta

from temporalio.client import Client
from temporalio.worker import Worker
from temporalio.worker.workflow_sandbox import SandboxedWorkflowRunner, SandboxRestrictions

from activities.boundary import Boundary
from bridge.desired import DesiredActivities
from bridge.dispatch import Dispatcher
from bridge.runs import Runs
from bridge.status import StatusActivities
from bridge.sweep import Sweep
from bridge.watch import Watch
from plnt import telemetry
from plnt.clients import kube, temporal
from plnt.clients.health import Check, serve_health
from plnt.clients.janitor_schedule import ensure_schedule
from plnt.clients.kube import Kube
from plnt.clients.stopping import stop_event
from plnt.clients.worker import run_workers
from plnt.settings import BridgeSettings, SettingsInvalid
from plnt.steps import Queue
from workflows.status_reporter import StatusReporter

ACTIVITY_SLOTS = 20
"""Activities at once: each is a few requests to the API server, which gives a client 20 a second without asking."""
GRACE = timedelta(seconds=10)
"""Longest time that a stop waits for activities; each is shorter than this while the API server answers."""


def open_worker(client: Client, api: Kube, settings: BridgeSettings) -> Worker:
    """Give the worker of the bridge's own task queue."""
    desired = DesiredActivities(api, settings.policy)
    status = StatusActivities(api, socket.gethostname())
    restrictions = SandboxRestrictions.default.with_passthrough_modules("plnt", "pydantic")
    return Worker(
        client,
        task_queue=Queue.BRIDGE,
        workflows=[StatusReporter],
        activities=[desired.load_desired, desired.drop_finalizer, status.write_status],
        workflow_runner=SandboxedWorkflowRunner(restrictions=restrictions),
        interceptors=[Boundary()],
        max_concurrent_activities=ACTIVITY_SLOTS,
        graceful_shutdown_timeout=GRACE,
    )


async def serve(settings: BridgeSettings) -> None:
    """Run until the process is told to stop, or until a part of it fails: its supervisor starts it again."""
    alive: list[Check] = []
    ready: list[Check] = [lambda: "Temporal was not reached yet"]
    health = serve_health(settings.listen_host, settings.health_port, lambda: _first(alive), lambda: _first(ready))
    async with health, kube.connect() as api:
        client = await temporal.connect(telemetry.start_runtime(settings), telemetry.start_tracing())
        await ensure_schedule(client, settings.janitor_seconds, settings.namespaces)
        stop = stop_event()
        runs = Runs(client)
        dispatcher = Dispatcher(runs)
        watches = [
            Watch(api, name, dispatcher.offer, resync=settings.resync_seconds, idle=settings.watch_idle_seconds)
            for name in settings.namespaces or (None,)
        ]
        sweep = Sweep(runs, watches, settings.resync_seconds)
        worker = open_worker(client, api, settings)
        alive += [watch.check_alive for watch in watches]
        ready[:] = [*(watch.check_ready for watch in watches), dispatcher.check_ready, lambda: _polling(worker)]
        async with asyncio.TaskGroup() as group:
            works = (dispatcher.run(), sweep.run(), *(watch.run() for watch in watches))
            tasks = [group.create_task(work) for work in works]
            await run_workers([worker], stop)
            for task in tasks:
                task.cancel()


def _first(checks: Sequence[Check]) -> str:
    return next((fault for fault in (check() for check in checks) if fault), "")


def _polling(worker: Worker) -> str:
    return "" if worker.is_running else "the worker does not poll yet"


def main() -> int:
    """Run the command."""
    try:
        settings = BridgeSettings.read(os.environ)
        telemetry.start_logging(settings)
        asyncio.run(serve(settings))
    except SettingsInvalid as error:
        print(f"wrong settings:\n{error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    telemetry.end_process(main())
