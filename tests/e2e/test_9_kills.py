"""Processes killed at bad moments, in a sandbox of their own; last, since they take time."""

import asyncio
import json
import signal
from collections.abc import AsyncIterator

import pytest

from plnt.model import names
from plnt.model.status import Phase
from plnt.sandbox.cluster import open_kube
from plnt.sandbox.programs import Programs
from plnt.sandbox.running import Sandbox, running_sandbox
from tests.e2e.models import MIB, Models
from tests.e2e.place import Place, make_place
from tests.e2e.scenario import FULL_PASS, Scenario
from tests.e2e.test_1_first_rollout import check_nothing_left
from tests.e2e.test_6_commands import reason
from tests.fakes.counting_proxy import CountingProxy, counting_proxy

RATE = 16_000_000
"""Bytes per second of the weights pool, so that there is a middle of a pull."""
RESYNC_SECONDS = 3
PULL_MIB = 96


@pytest.fixture(scope="module")
async def proxy() -> AsyncIterator[CountingProxy]:
    """What stands between the weights pool and the S3 server."""
    async with counting_proxy() as running:
        yield running


@pytest.fixture(scope="module")
async def slow_sandbox(
    tmp_path_factory: pytest.TempPathFactory, programs: Programs, proxy: CountingProxy
) -> AsyncIterator[Sandbox]:
    """A sandbox whose pulls take seconds and are counted."""
    settings = {
        "PLNT_PULL_BYTES_PER_SECOND": str(RATE),
        "PLNT_RESYNC_SECONDS": str(RESYNC_SECONDS),
        "AWS_ENDPOINT_URL_S3": proxy.url,
    }
    async with running_sandbox(tmp_path_factory.mktemp("kills"), programs, overrides=settings) as running:
        proxy.target = running.site.s3
        yield running


@pytest.fixture
async def broken_place(request: pytest.FixtureRequest, slow_sandbox: Sandbox) -> AsyncIterator[Place]:
    """A place in the sandbox whose processes get killed."""
    async with open_kube(slow_sandbox.kubeconfig) as kube:
        yield await make_place(slow_sandbox, kube, request.node.name)


async def test_pull_resumes_at_verified_bytes_when_its_worker_is_killed(
    broken_place: Place, proxy: CountingProxy
) -> None:
    sandbox = broken_place.sandbox
    models, scenario = Models(sandbox), Scenario(broken_place)
    async with scenario.recorded():
        await scenario.apply(await models.uri("killed", megabytes=PULL_MIB))
        await scenario.wait_status(lambda status: _percent(status) >= 40, 60, "40 % of the pull")
        sandbox.supervisor.kill("weights", signal.SIGKILL)
        before = proxy.served
        await scenario.wait_phase(Phase.READY, 1)
    assert scenario.phases(1) == FULL_PASS
    assert proxy.served - before < 0.75 * PULL_MIB * MIB


async def test_run_cancelled_while_it_pulls_ends_rolled_back_and_undone(broken_place: Place) -> None:
    scenario = Scenario(broken_place)
    generation = await scenario.apply(await Models(broken_place.sandbox).uri("large", megabytes=PULL_MIB))
    await scenario.wait_phase(Phase.PULLING_WEIGHTS, generation)
    await scenario.temporal("workflow", "cancel")
    await scenario.wait_phase(Phase.ROLLED_BACK, generation)
    await check_nothing_left(scenario)
    described = json.loads(await scenario.temporal("workflow", "describe", "-o", "json"))
    assert described["workflowExecutionInfo"]["status"] == "WORKFLOW_EXECUTION_STATUS_CANCELED"


async def test_rollout_goes_on_when_the_bridge_is_killed_in_its_middle(broken_place: Place) -> None:
    sandbox = broken_place.sandbox
    scenario = Scenario(broken_place)
    async with scenario.recorded():
        await scenario.apply(await Models(sandbox).uri("bridge", megabytes=48))
        await scenario.wait_phase(Phase.PULLING_WEIGHTS, 1)
        sandbox.supervisor.kill("bridge", signal.SIGKILL)
        await scenario.wait_phase(Phase.READY, 1)
    assert scenario.phases(1) == FULL_PASS
    assert len(await scenario.runs()) == 1


async def test_cancel_before_any_worker_took_the_run_is_carried_out_once_one_is_there(broken_place: Place) -> None:
    sandbox, scenario = broken_place.sandbox, Scenario(broken_place)
    uri = await Models(sandbox).uri("good")
    await sandbox.supervisor.stop("control")
    await scenario.apply(uri)
    await scenario.wait_phase(Phase.PENDING, 1)
    await scenario.wait_for(scenario.runs, bool, "run")
    await scenario.temporal("workflow", "cancel")
    sandbox.supervisor.resume("control")
    await scenario.wait_phase(Phase.ROLLED_BACK, 1)
    await check_nothing_left(scenario)


@pytest.mark.extended
async def test_pause_and_approval_outlive_the_processes_that_hold_the_run(broken_place: Place) -> None:
    sandbox, scenario = broken_place.sandbox, Scenario(broken_place)
    held = {"plnt.work/pause": "", "plnt.work/approve": "0"}
    await scenario.apply(await Models(sandbox).uri("good"), annotations=held)
    await scenario.wait_status(lambda seen: reason(seen, "Reconciling") == "Paused", 60, "pause")
    await _restart(sandbox, "bridge", "control")
    assert (await scenario.status())["phase"] == Phase.VALIDATING
    await scenario.kubectl("annotate", "workflowrun", scenario.name, "plnt.work/pause-")
    await scenario.wait_status(lambda seen: reason(seen, "Promoted") == "AwaitingApproval", 60, "hold")
    await _restart(sandbox, "bridge", "control")
    assert (await scenario.status())["phase"] == Phase.SMOKE_TESTING
    await scenario.kubectl("annotate", "--overwrite", "workflowrun", scenario.name, "plnt.work/approve=1")
    await scenario.wait_phase(Phase.READY, 1)
    assert len(await scenario.runs()) == 1


async def _restart(sandbox: Sandbox, *components: str) -> None:
    for component in components:
        sandbox.supervisor.kill(component, signal.SIGKILL)
    await sandbox.wait_polling(components)


async def test_restarted_bridge_starts_no_new_run_of_settled_objects(broken_place: Place) -> None:
    sandbox = broken_place.sandbox
    models = Models(sandbox)
    ready, undone = Scenario(broken_place, "ready"), Scenario(broken_place, "undone")
    await ready.apply(await models.uri("good"))
    await undone.apply(await models.uri("slow", ttftMs=700))
    await ready.wait_phase(Phase.READY, 1)
    await undone.wait_phase(Phase.ROLLED_BACK, 1)
    before = [await scenario.runs() for scenario in (ready, undone)]
    sandbox.supervisor.kill("bridge", signal.SIGKILL)
    await sandbox.wait_polling(["bridge"])
    # A start and two resyncs pass: what is asserted is that nothing happens.
    await asyncio.sleep(2 * RESYNC_SECONDS + 1)
    assert [await scenario.runs() for scenario in (ready, undone)] == before


@pytest.mark.extended
async def test_line_for_gpus_survives_its_processes(broken_place: Place) -> None:
    sandbox = broken_place.sandbox
    models = Models(sandbox)
    holder, waiter = Scenario(broken_place, "holder"), Scenario(broken_place, "waiter")
    await holder.apply(await models.uri("good"), resources={"gpu": 6})
    await holder.wait_phase(Phase.READY, 1)
    await waiter.apply(await models.uri("good"), resources={"gpu": 4})
    await waiter.wait_phase(Phase.DEPLOYING, 1)
    for component in ("gpu", "control"):
        sandbox.supervisor.kill(component, signal.SIGKILL)
    await holder.kubectl("delete", "workflowrun", "holder", "--timeout=60s")
    await waiter.wait_phase(Phase.READY, 1)
    assert await waiter.releases() == {
        name for name in await waiter.releases() if name.startswith(names.base_name("waiter"))
    }


def _percent(status: dict[str, object]) -> float:
    """Read "12.0 of 47.3 MiB, ..." in the condition WeightsReady."""
    conditions = status.get("conditions", [])
    assert isinstance(conditions, list)
    words: list[str] = next((c["message"].split() for c in conditions if c["type"] == "WeightsReady"), [])
    return 100 * float(words[0]) / float(words[2]) if words[1:2] == ["of"] else 0.0


async def test_validating_fails_a_source_without_access_and_names_the_field(broken_place: Place) -> None:
    sandbox = broken_place.sandbox
    uri = await Models(sandbox).uri("good")
    await sandbox.supervisor.stop("weights")
    sandbox.supervisor.resume("weights", {"AWS_SECRET_ACCESS_KEY": "wrong"})
    scenario = Scenario(broken_place)
    await scenario.apply(uri)
    status = await scenario.wait_phase(Phase.FAILED, 1)
    assert status["lastError"].startswith("AccessDenied: ")
    assert "storageUri" in status["lastError"]
