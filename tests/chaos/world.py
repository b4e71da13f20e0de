"""What is to be true once everything has settled: the world equals the WorkflowRuns."""

import asyncio
import json
from contextlib import suppress
from dataclasses import dataclass

from temporalio.api.workflowservice.v1 import ListWorkflowExecutionsRequest
from temporalio.service import RPCError

from plnt.clients.kube import DEPLOYMENTS, SERVICES, VIRTUAL_SERVICES, WORKFLOW_RUNS, Object
from plnt.errors import PlntError
from plnt.model import names
from plnt.model.line import Line
from plnt.model.status import TERMINAL_PHASES, Phase
from plnt.model.traffic import INSTANCE_LABEL
from tests.command_line import run_command
from tests.e2e.place import Place

SETTLE_SECONDS = 240.0
"""Longest time until everything has settled after the last fault: back-offs of 30 s, a resync, a rollout or two."""


@dataclass(frozen=True)
class World:
    """The namespace as the API server and Temporal show it."""

    runs: dict[str, Object]
    deployments: dict[str, set[str]]
    """Owner's base name -> names."""
    weights: dict[str, dict[str, int]]
    """Base name -> release -> weight."""
    selectors: dict[str, str]
    """Base name -> release that the front Service selects."""
    records: dict[str, str]
    """Helm's releases -> status."""
    open_runs: set[str]
    leases: list[str]


async def read_world(place: Place) -> World:
    """Read everything."""
    kube, namespace = place.kube, place.namespace
    runs, _ = await kube.list(WORKFLOW_RUNS, namespace)
    deployments, _ = await kube.list(DEPLOYMENTS, namespace)
    routes, _ = await kube.list(VIRTUAL_SERVICES, namespace)
    services, _ = await kube.list(SERVICES, namespace)
    return World(
        runs={run["metadata"]["name"]: run for run in runs},
        deployments=_by_owner(deployments),
        weights={route["metadata"]["name"]: read_release_weights(route) for route in routes},
        selectors={
            one["metadata"]["name"]: (one["spec"].get("selector") or {}).get(INSTANCE_LABEL, "")
            for one in services
            if names.CLAIM_ANNOTATION in (one["metadata"].get("annotations") or {})
        },
        records=await _list_records(place),
        open_runs=await _list_open(place),
        leases=await _list_leases(place),
    )


def _by_owner(objects: list[Object]) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for one in objects:
        found.setdefault(one["metadata"]["labels"].get(names.OWNER_LABEL, ""), set()).add(one["metadata"]["name"])
    return found


def read_release_weights(route: Object) -> dict[str, int]:
    """Give the weights on a route, by release."""
    targets = route["spec"]["http"][0]["route"]
    return {one["destination"]["host"].split(".")[0]: one.get("weight", 100) for one in targets}


async def _list_records(place: Place) -> dict[str, str]:
    sandbox = place.sandbox
    command = [str(sandbox.programs.helm), "list", "--output", "json", "--namespace", place.namespace]
    out = await run_command(command, sandbox.environment)
    return {one["name"]: one["status"] for one in json.loads(out)}


async def _list_open(place: Place) -> set[str]:
    client = await place.sandbox.connect_temporal()
    request = ListWorkflowExecutionsRequest(
        namespace=client.namespace, query="WorkflowType = 'Rollout' AND CloseTime IS NULL"
    )
    answer = await client.workflow_service.list_workflow_executions(request)
    prefix = names.rollout_id(place.namespace, "")
    ids = (one.execution.workflow_id for one in answer.executions)
    return {one.removeprefix(prefix) for one in ids if one.startswith(prefix)}


async def _list_leases(place: Place) -> list[str]:
    client = await place.sandbox.connect_temporal()
    try:
        line = await client.get_workflow_handle(names.gpu_pool_id(place.gpu_class)).query("line", result_type=Line)
    except RPCError:
        return []
    return [entry.join.workflow_id for entry in line.entries]


def find_faults(world: World) -> list[str]:
    """Give every difference between the world and what the WorkflowRuns say."""
    faults = [f"{name} has an open rollout" for name in sorted(world.open_runs)]
    faults += [f"{owner} holds a lease or a place in the line" for owner in world.leases]
    bases = {names.base_name(name): run for name, run in world.runs.items()}
    for base in sorted({*world.deployments, *world.weights, *world.selectors, *bases}):
        run = bases.get(base)
        faults += _find_leftovers(base, world) if run is None else _find_differences(base, run, world)
    owned = {name for releases in world.deployments.values() for name in releases}
    faults += [
        f"Helm record {name} ({status}) has no Deployment"
        for name, status in world.records.items()
        if name not in owned
    ]
    faults += [f"Helm record {name} is {status}" for name, status in world.records.items() if status != "deployed"]
    return faults


def _find_leftovers(base: str, world: World) -> list[str]:
    kinds = (("Deployments", world.deployments), ("a route", world.weights), ("a front Service", world.selectors))
    return [f"{base} is deleted but has {what}: {of[base]}" for what, of in kinds if base in of]


def _find_differences(base: str, run: Object, world: World) -> list[str]:
    status = run.get("status") or {}
    phase, generation = status.get("phase"), run["metadata"]["generation"]
    releases = world.deployments.get(base, set())
    if phase not in TERMINAL_PHASES or status.get("observedGeneration") != generation:
        return [f"{base} is {phase} of {status.get('observedGeneration')}, its generation is {generation}"]
    faults = []
    if len(releases) > 1 or (phase == Phase.READY and len(releases) != 1):
        faults.append(f"{base} is {phase} with releases {sorted(releases)}")
    expected = dict.fromkeys(releases, 100)
    if world.weights.get(base, {}) != expected:
        faults.append(f"{base} has weights {world.weights.get(base)}, releases {sorted(releases)}")
    if world.selectors.get(base, "") != next(iter(releases), ""):
        faults.append(f"{base} selects {world.selectors.get(base)!r}, releases {sorted(releases)}")
    if bool(status.get("endpoint")) != bool(releases):
        faults.append(f"{base} reports endpoint {status.get('endpoint')!r} with releases {sorted(releases)}")
    if phase == Phase.READY and status.get("lastError"):
        faults.append(f"{base} is Ready with lastError {status['lastError']!r}")
    return faults


async def wait_settled(place: Place, seconds: float = SETTLE_SECONDS) -> World:
    """Wait until the world equals the WorkflowRuns; fails with the differences that stay."""
    faults: list[str] = []
    try:
        async with asyncio.timeout(seconds):
            while True:
                # A server that was killed a moment ago may not answer yet.
                with suppress(PlntError):
                    world = await read_world(place)
                    faults = find_faults(world)
                    if not faults:
                        return world
                await asyncio.sleep(0.5)
    except TimeoutError:
        raise AssertionError(f"not settled within {seconds:.0f} s: " + "; ".join(faults)) from None
