"""Measure what plnt adds to the work of a rollout: ``python -m benchmarks.rollout [throughput|latency]``.

``throughput``: rollouts a minute of one control worker whose steps do nothing, against a bare workflow with the same
activities, signals and receiver on the same server, in the same process, in turn. ``latency``: the time from
``kubectl apply`` to Ready on the sandbox, with an engine that is ready at once and cached weights, against the sum of
the steps' own times. Ratios alone mean something elsewhere. Ends with status 1 when one misses its bar.
"""

import asyncio
import gc
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from temporalio.api.enums.v1 import EventType
from temporalio.client import WorkflowHistory
from temporalio.worker import Worker

from benchmarks.bare_workflow import Bare, Call, Score
from plnt.model import names
from plnt.model.status import Phase
from plnt.sandbox.build import find_servers
from plnt.sandbox.cluster import open_kube
from plnt.sandbox.programs import find_programs
from plnt.sandbox.running import Sandbox, running_sandbox
from tests.e2e.models import Models
from tests.e2e.place import make_place
from tests.e2e.scenario import Scenario
from tests.fakes.rollouts import Rollouts, running_rollouts
from tests.fakes.steps import make_desired
from workflows.__main__ import sandbox as workflow_sandbox

MOST_EVENTS, LEAST_SHARE, MOST_OVERHEAD = 150, 0.8, 1.25
AT_ONCE, ROUNDS = 40, 3
APPLIES = 5


async def record_score(rollouts: Rollouts) -> tuple[Score, int]:
    """Roll one out; give what it asked of the server, and its history's length."""
    await rollouts.roll_out("recorded", make_desired())
    world = rollouts.world("recorded")
    taken = {step: list(args) for step, args in world.taken.items()}
    calls = [
        Call(step=step, arg=taken[step].pop(0).model_dump(mode="json"), beside=step == "resolve-class")
        for step in world.calls
    ]
    # Which of the two parallel steps came first is chance.
    order = {"resolve-class": 0, "resolve-source": 1}
    at = [i for i, call in enumerate(calls) if call.step in order]
    calls[at[0]], calls[at[1]] = sorted((calls[i] for i in at), key=lambda call: order[call.step])
    reports = await rollouts.reports("recorded")
    score = Score(receiver="", calls=calls, report=reports[-1], reports=len(reports))
    return score, await rollouts.count_events("recorded")


async def run_rollouts(rollouts: Rollouts, number: int) -> float:
    """Give the seconds that rollouts at once took."""
    keys = [f"bench-{number}-{i}" for i in range(AT_ONCE)]
    began = time.monotonic()
    await asyncio.gather(*(rollouts.roll_out(key, make_desired()) for key in keys))
    return time.monotonic() - began


async def run_bare(rollouts: Rollouts, score: Score, number: int) -> float:
    """Give the seconds that bare workflows at once took, each with a receiver of its own."""

    async def run_one(key: str) -> None:
        receiver = names.reporter_id("default", key)
        await rollouts.client.start_workflow("ReportLog", id=receiver, task_queue="test-report-log")
        ref = {"namespace": "default", "name": key}
        calls = [call.model_copy(update={"arg": {**call.arg, "ref": ref}}) for call in score.calls]
        await rollouts.client.execute_workflow(
            "Bare",
            score.model_copy(update={"receiver": receiver, "calls": calls}),
            id=names.rollout_id("default", key),
            task_queue="bare",
        )
        await rollouts.reports(key)

    began = time.monotonic()
    await asyncio.gather(*(run_one(f"bare-{number}-{i}") for i in range(AT_ONCE)))
    return time.monotonic() - began


async def measure_throughput() -> dict[str, Any]:
    """Compare rollouts with bare workflows, in turn; the best of the rounds, since other work only slows down."""
    async with running_rollouts() as rollouts:
        score, events = await record_score(rollouts)
        bare = Worker(rollouts.client, task_queue="bare", workflows=[Bare], workflow_runner=workflow_sandbox())
        async with bare:
            own, peer = [], []
            for number in range(ROUNDS):
                own.append(await run_rollouts(rollouts, number))
                peer.append(await run_bare(rollouts, score, number))
    per_minute = [60 * AT_ONCE / min(seconds) for seconds in (own, peer)]
    return {
        "rollouts_per_minute": round(per_minute[0]),
        "bare_per_minute": round(per_minute[1]),
        "share": round(per_minute[0] / per_minute[1], 2),
        "events": events,
    }


def sum_steps(history: WorkflowHistory) -> float:
    """Give the seconds for which at least one activity of the history was at work."""
    started: dict[int, float] = {}
    spans = []
    for event in history.events:
        at = event.event_time.ToNanoseconds() / 1e9
        if event.event_type == EventType.EVENT_TYPE_ACTIVITY_TASK_STARTED:
            started[event.activity_task_started_event_attributes.scheduled_event_id] = at
        elif event.event_type == EventType.EVENT_TYPE_ACTIVITY_TASK_COMPLETED:
            spans.append((started[event.activity_task_completed_event_attributes.scheduled_event_id], at))
    total, until = 0.0, 0.0
    for begin, end in sorted(spans):
        total += max(0.0, end - max(begin, until))
        until = max(until, end)
    return total


@asynccontextmanager
async def open_sandbox() -> AsyncIterator[Sandbox]:
    """Run a sandbox for the time of the benchmark."""
    servers = find_servers(os.environ)
    if servers is None:
        sys.exit("the servers are not built: run `plnt build` first")
    with tempfile.TemporaryDirectory() as folder:
        programs = find_programs(servers.folder, servers.istio_crds)
        async with running_sandbox(Path(folder) / "sandbox", programs, overrides={"PLNT_BAKE_SECONDS": "0"}) as running:
            yield running


async def measure_latency() -> dict[str, Any]:
    """Compare apply to Ready with the steps' own times; the first apply only fills the cache."""
    ratios, applied = [], []
    async with open_sandbox() as running, open_kube(running.kubeconfig) as kube:
        place = await make_place(running, kube, "bench")
        uri = await Models(running).uri("instant", ttftMs=1, tpotMs=1, loadSeconds=0)
        for number in range(APPLIES + 1):
            scenario = Scenario(place, f"bench-{number}")
            began = time.monotonic()
            await scenario.apply(uri)
            await scenario.wait_phase(Phase.READY, 1)
            seconds = time.monotonic() - began
            client = await running.connect_temporal()
            handle = client.get_workflow_handle(names.rollout_id(place.namespace, scenario.name))
            await handle.result()
            steps = sum_steps(await handle.fetch_history())
            await scenario.kubectl("delete", "workflowrun", scenario.name, "--timeout=60s")
            if number:
                ratios.append(seconds / steps)
                applied.append(seconds)
    return {
        "apply_to_ready_seconds": round(statistics.median(applied), 2),
        "overhead": round(statistics.median(ratios), 2),
    }


def judge(report: dict[str, Any]) -> list[str]:
    """Give the bars that were missed."""
    faults = []
    if report.get("events", 0) > MOST_EVENTS:
        faults.append(f"events {report['events']} > {MOST_EVENTS}")
    if report.get("share", 1) < LEAST_SHARE:
        faults.append(f"share {report['share']} < {LEAST_SHARE}")
    if report.get("overhead", 1) > MOST_OVERHEAD:
        faults.append(f"overhead {report['overhead']} > {MOST_OVERHEAD}")
    return faults


async def main() -> int:
    wanted = sys.argv[1:] or ["throughput", "latency"]
    report: dict[str, Any] = {}
    if "throughput" in wanted:
        report |= await measure_throughput()
    if "latency" in wanted:
        report |= await measure_latency()
    print(json.dumps(report))
    faults = judge(report)
    print("\n".join(faults), file=sys.stderr)
    return int(bool(faults))


if __name__ == "__main__":
    status = asyncio.run(main())
    gc.collect()
    sys.exit(status)
