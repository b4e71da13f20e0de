"""A sample of what `make chaos` does in full: kills at moments of a rollout, and outages of both servers."""

import asyncio
import json
import signal
from collections.abc import AsyncIterator

import pytest

from plnt import resources
from plnt.clients.kube import WORKFLOW_RUNS
from plnt.model import names
from plnt.model.status import Phase
from plnt.sandbox.cluster import open_kube, wait_served
from plnt.sandbox.product import PRODUCT
from plnt.sandbox.programs import Programs
from plnt.sandbox.running import Sandbox, running_sandbox
from tests.chaos.kills import SETTINGS, Cell, Subject, play, serve_first, strike, upload, wait_end, wait_moment
from tests.chaos.world import wait_settled
from tests.e2e.place import Place, make_place
from tests.e2e.scenario import Scenario
from tests.e2e.test_6_commands import run_temporal

CELLS = (Cell("bridge", "Pending"), Cell("deploy", "Deploying"), Cell("temporal", "SmokeTesting"))
MORE_CELLS = (
    Cell("control", "Validating"),
    Cell("weights", "PullingWeights"),
    Cell("etcd", "Deploying"),
    Cell("promote", "Promoting"),
    Cell("kube-apiserver", "Promoting"),
    Cell("control", "undo"),
)
"""Those that only `make extended` runs, to keep `make test` short."""
OUTAGE_SECONDS = 30.0


@pytest.fixture(scope="module")
async def tough_sandbox(tmp_path_factory: pytest.TempPathFactory, programs: Programs) -> AsyncIterator[Sandbox]:
    async with running_sandbox(tmp_path_factory.mktemp("tough"), programs, overrides=SETTINGS) as running:
        yield running


@pytest.fixture(scope="module")
async def place(tough_sandbox: Sandbox) -> AsyncIterator[Place]:
    async with open_kube(tough_sandbox.kubeconfig) as kube:
        yield await make_place(tough_sandbox, kube, "chaos")


@pytest.fixture(scope="module")
async def subject(place: Place) -> Subject:
    return await serve_first(place)


@pytest.mark.parametrize(
    "cell", [*CELLS, *(pytest.param(cell, marks=pytest.mark.extended) for cell in MORE_CELLS)], ids=str
)
async def test_rollout_ends_as_it_should_when_a_process_is_killed(subject: Subject, cell: Cell) -> None:
    await play(subject, cell)


@pytest.mark.parametrize(
    ("server", "moment"), [("temporal", Phase.PULLING_WEIGHTS), ("kube-apiserver", Phase.DEPLOYING)]
)
async def test_rollout_goes_on_after_an_outage_of_half_a_minute(subject: Subject, server: str, moment: Phase) -> None:
    scenario = subject.scenario
    uri = await upload(subject.place.sandbox, 24)
    async with scenario.recorded():
        generation = await scenario.apply(uri)
        await wait_moment(scenario, generation, moment)
    await strike(subject.place.sandbox, server, OUTAGE_SECONDS)
    await wait_end(scenario, Phase.READY, generation)
    await wait_settled(subject.place)
    subject.serving = await scenario.releases()
    assert len(subject.serving) == 1


@pytest.mark.extended
async def test_pull_obeys_the_activity_commands_by_its_name(place: Place) -> None:
    scenario = Scenario(place, "held")
    pull = ("--activity-id", "pull-weights")
    await scenario.apply(await upload(place.sandbox, 64))
    await scenario.wait_phase(Phase.PULLING_WEIGHTS, 1)
    await scenario.temporal("activity", "pause", *pull)
    await scenario.wait_for(
        lambda: scenario.temporal("workflow", "describe", "-o", "json"),
        lambda said: '"paused": true' in said.lower(),
        "pause",
    )
    await scenario.temporal("activity", "update-options", *pull, "--heartbeat-timeout", "20s")
    await scenario.temporal("activity", "unpause", *pull)
    await scenario.temporal("activity", "reset", *pull, "--clear-heartbeat-details")
    await scenario.wait_phase(Phase.READY, 1)
    assert len(await scenario.runs()) == 1


@pytest.mark.extended
async def test_paused_pull_is_found_by_a_query_and_can_be_cancelled(place: Place) -> None:
    scenario = Scenario(place, "paused")
    await scenario.apply(await upload(place.sandbox, 160))
    await scenario.wait_phase(Phase.PULLING_WEIGHTS, 1)
    await scenario.temporal("activity", "pause", "--activity-id", "pull-weights")
    query = f"PlntNamespace = '{place.namespace}' AND TemporalPauseInfo IS NOT NULL"

    async def count() -> int:
        return int(json.loads(await run_temporal(place, "workflow", "count", "-q", query, "-o", "json"))["count"])

    await scenario.wait_for(count, lambda found: found == 1, "paused activity in the query")
    await scenario.temporal("workflow", "cancel")
    await scenario.wait_phase(Phase.ROLLED_BACK, 1)
    await wait_settled(place)


@pytest.mark.extended
async def test_rollout_waits_for_a_pool_that_is_gone_and_goes_on_when_it_is_back(subject: Subject) -> None:
    scenario, sandbox = subject.scenario, subject.place.sandbox
    await sandbox.supervisor.stop("deploy", signal.SIGKILL)
    async with scenario.recorded():
        generation = await scenario.apply(await upload(sandbox, 2))
        await wait_moment(scenario, generation, Phase.VALIDATING)
    await asyncio.sleep(3)
    sandbox.supervisor.resume("deploy")
    await wait_end(scenario, Phase.READY, generation)
    subject.serving = await scenario.releases()


@pytest.mark.extended
async def test_rollout_goes_on_when_every_process_of_plnt_restarts_at_once(subject: Subject) -> None:
    scenario, sandbox = subject.scenario, subject.place.sandbox
    uri, before = await upload(sandbox, 2), await scenario.runs()
    async with scenario.recorded():
        generation = await scenario.apply(uri, annotations={"plnt.work/bake-seconds": "10"})
        await wait_moment(scenario, generation, Phase.SMOKE_TESTING)
    for component in PRODUCT:
        sandbox.supervisor.kill(component, signal.SIGTERM)
    await wait_end(scenario, Phase.READY, generation)
    await wait_settled(subject.place)
    subject.serving = await scenario.releases()
    assert len(await scenario.runs()) == len(before) + 1


@pytest.mark.extended
async def test_deleted_kind_takes_everything_down_and_works_again_once_it_is_back(place: Place) -> None:
    subject = await serve_first(place, "kind")
    sandbox = place.sandbox
    await sandbox.kubectl("delete", "crd", f"{WORKFLOW_RUNS.plural}.{names.GROUP}", "--timeout=90s")
    assert await subject.scenario.releases() == set()
    await sandbox.kubectl("apply", "-f", str(resources.crd_path()))
    await wait_served(place.kube, WORKFLOW_RUNS)
    again = await serve_first(place, "kind")
    await wait_settled(place)
    assert len(again.serving) == 1
