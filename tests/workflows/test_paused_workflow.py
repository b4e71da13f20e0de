"""`temporal workflow pause`, which a server must be told to allow: a paused rollout counts as an open one."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from temporalio.api.enums.v1 import EventType
from temporalio.client import WorkflowExecutionStatus

from bridge.runs import Runs
from plnt.model import names
from plnt.model.status import Phase
from tests.fakes.rollouts import PATIENCE_SECONDS, TEMPORAL, Rollouts, running_rollouts
from tests.fakes.steps import NAMESPACE, Fault, make_desired

NAME = "paused"


@pytest.fixture
async def pausing() -> AsyncIterator[Rollouts]:
    async with running_rollouts(server=["frontend.WorkflowPauseEnabled=true"]) as running:
        yield running


async def run_command(rollouts: Rollouts, verb: str) -> None:
    """Do what operators do."""
    address = rollouts.client.service_client.config.target_host
    words = ["workflow", verb, "-w", names.rollout_id(NAMESPACE, NAME), "--reason", "test", "--address", address]
    process = await asyncio.create_subprocess_exec(
        str(TEMPORAL), *words, stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.PIPE
    )
    _, errors = await process.communicate()
    assert process.returncode == 0, errors.decode()


async def wait_listed(rollouts: Rollouts) -> None:
    """Wait until the bridge finds the run among the open ones; the server lists it a moment after it changed."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        while True:
            if await Runs(rollouts.client).list_open() == {(NAMESPACE, NAME)}:
                return
            await asyncio.sleep(0.1)


async def test_paused_workflow_takes_no_next_step_and_a_cancel_waits_until_it_goes_on(pausing: Rollouts) -> None:
    world = pausing.world(NAME)
    fault = world.faults["pull-weights"] = Fault(hold=True)
    await pausing.poke(NAME, make_desired())
    await pausing.wait_entered(NAME, "pull-weights")
    await run_command(pausing, "pause")
    fault.released.set()
    await pausing.handle(NAME).cancel()
    await pausing.wait_event(NAME, EventType.EVENT_TYPE_WORKFLOW_EXECUTION_CANCEL_REQUESTED)
    assert "join-line" not in world.calls
    await wait_listed(pausing)
    await run_command(pausing, "unpause")
    ended = await pausing.wait(NAME)
    assert (ended.status, ended.last.phase) == (WorkflowExecutionStatus.CANCELED, Phase.ROLLED_BACK)
    assert "install-release" not in world.calls
