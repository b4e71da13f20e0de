"""Worker versioning, when an operator opts in: open runs keep their build, superseded ones and new ones move on."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.enums.v1 import VersioningBehavior
from temporalio.api.workflowservice.v1 import DescribeWorkflowExecutionRequest

from plnt.model import names
from plnt.model.status import Phase
from plnt.settings import ControlSettings, SettingsInvalid
from tests.fakes.rollouts import TEMPORAL, Rollouts, running_rollouts
from tests.fakes.steps import Fault, make_desired, make_spec

pytestmark = pytest.mark.timeout(120)

OLD, NEW = (ControlSettings(worker_deployment="plnt", worker_build=build) for build in ("1", "2"))


@pytest.fixture
async def versioned() -> AsyncIterator[Rollouts]:
    async with running_rollouts(OLD, NEW) as running:
        yield running


async def set_current(rollouts: Rollouts, build: str) -> None:
    """Do what operators do, again until the build's workers are known to the server."""
    address = rollouts.client.service_client.config.target_host
    command = [str(TEMPORAL), "worker", "deployment", "set-current-version", "--yes", "--address", address]
    while True:
        process = await asyncio.create_subprocess_exec(
            *command, "--deployment-name", "plnt", "--build-id", build,
            stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.PIPE,
        )  # fmt: skip
        _, errors = await process.communicate()
        if process.returncode == 0:
            return
        assert b"found" in errors, errors.decode()


async def read_version(rollouts: Rollouts, name: str, run_id: str = "") -> tuple[int, str]:
    """Give how the run is versioned, and its build."""
    request = DescribeWorkflowExecutionRequest(
        namespace=rollouts.client.namespace,
        execution=WorkflowExecution(workflow_id=names.rollout_id("default", name), run_id=run_id),
    )
    answer = await rollouts.client.workflow_service.describe_workflow_execution(request)
    found = answer.workflow_execution_info.versioning_info
    return (found.behavior, found.deployment_version.build_id)


async def test_open_run_keeps_its_build_and_a_superseding_one_takes_the_current(versioned: Rollouts) -> None:
    await set_current(versioned, "1")
    pinned = VersioningBehavior.VERSIONING_BEHAVIOR_PINNED
    for name in ("kept", "moved"):
        versioned.world(name).faults["pull-weights"] = Fault(hold=True)
        await versioned.poke(name)
        await versioned.wait_entered(name, "pull-weights")
    await set_current(versioned, "2")
    versioned.world("kept").faults["pull-weights"].released.set()
    assert (await versioned.wait("kept")).last.phase is Phase.READY
    assert await read_version(versioned, "kept") == (pinned, "1")
    versioned.world("moved").faults["pull-weights"].hold = False
    newer = make_desired(2, spec=make_spec(model__storageUri="s3://models/next"))
    ended = await versioned.roll_out("moved", newer)
    assert (ended.last.phase, ended.last.generation) == (Phase.READY, 2)
    assert await read_version(versioned, "moved") == (pinned, "2")


@pytest.mark.parametrize("given", ["PLNT_WORKER_DEPLOYMENT", "PLNT_WORKER_BUILD"])
def test_half_of_a_version_is_refused_by_name(given: str) -> None:
    with pytest.raises(SettingsInvalid, match="PLNT_WORKER_DEPLOYMENT and PLNT_WORKER_BUILD"):
        ControlSettings.read({given: "x"})
