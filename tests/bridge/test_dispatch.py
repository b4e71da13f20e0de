"""The dispatcher on a real Temporal server: which runs exist, and what stands in status."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any, Literal
from uuid import uuid4

import pytest
from temporalio.client import WorkflowExecutionStatus
from temporalio.common import SearchAttributeKey
from temporalio.service import RPCError, RPCStatusCode
from temporalio.worker import Worker

from bridge.dispatch import Dispatcher
from bridge.runs import Runs
from bridge.watch import Change
from plnt.model import names
from plnt.model.status import Phase, PhaseReport
from tests.fakes.bridge_server import BridgeServer, serve_bridge
from tests.fakes.scripted_rollout import Ending, ScriptedRollout
from tests.fakes.waiting import eventually
from workflows.__main__ import sandbox

QUEUE = "test-rollouts"


@pytest.fixture(scope="module")
async def server() -> AsyncIterator[BridgeServer]:
    async with (
        serve_bridge(rollout_queue=QUEUE) as server,
        Worker(server.client, task_queue=QUEUE, workflows=[ScriptedRollout], workflow_runner=sandbox()),
    ):
        yield server


class Bridge:
    """A dispatcher, the object that it is told of, and that object's runs."""

    def __init__(self, server: BridgeServer, name: str) -> None:
        self.server, self.name = server, name
        self.dispatcher = Dispatcher(server.runs)
        self._task = asyncio.create_task(self.dispatcher.run())

    async def tell(self, *, listed: bool = False, gone: bool = False) -> None:
        """Offer the object as it stands, and wait until that was worked off."""
        self.dispatcher.offer(Change(self.server.seen(self.name), gone=gone, listed=listed))
        await self.until_idle()

    async def until_idle(self) -> None:
        await eventually(lambda: not self.dispatcher._work)

    async def runs(self) -> int:
        """How many runs of the object's rollout there are, closed ones included."""
        query = f"WorkflowId = '{names.rollout_id('default', self.name)}'"
        return (await self.server.client.count_workflows(query)).count

    async def until_runs(self, count: int) -> None:
        async with asyncio.timeout(60):
            while await self.runs() != count:
                pass

    async def end(self, how: Literal["completed", "failed", "open"] = "completed", **changes: Any) -> None:
        """Let the open run note the identity, and close by itself or by a person's cancel."""
        seen = self.server.seen(self.name)
        report = PhaseReport(
            uid=seen.uid,
            generation=seen.generation,
            run_id="r",
            sent_at=5.0,
            phase=Phase.READY if how == "completed" else Phase.ROLLED_BACK,
            observed_options=seen.options_digest,
        )
        handle = self.server.rollout(self.name)
        await handle.signal("end", Ending(**{"identity": seen.identity, "report": report, "how": how, **changes}))
        async with asyncio.timeout(60):
            while "identity" not in await (await handle.describe()).memo():
                pass
            if how == "open":
                await handle.cancel()
            while (await handle.describe()).status is WorkflowExecutionStatus.RUNNING:
                pass

    async def restart(self) -> None:
        """Forget everything, as a new process does."""
        await self.stop()
        self.dispatcher = Dispatcher(self.server.runs)
        self._task = asyncio.create_task(self.dispatcher.run())

    async def stop(self) -> None:
        assert not self._task.done(), "the dispatcher ended"
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)


@pytest.fixture
async def bridge(server: BridgeServer) -> AsyncIterator[Bridge]:
    name = f"case-{uuid4().hex[:8]}"
    server.api.put(name, uid=f"uid-of-{name}")
    bridge = Bridge(server, name)
    yield bridge
    await bridge.stop()


async def test_new_object_is_pending_and_has_one_run_with_what_people_search_for(bridge: Bridge) -> None:
    await bridge.tell()
    await bridge.tell()
    await eventually(lambda: bridge.server.status(bridge.name).get("phase") == "Pending")
    await bridge.until_runs(1)
    found = await bridge.server.rollout(bridge.name).describe()
    values = {
        name: found.typed_search_attributes[SearchAttributeKey.for_keyword(f"Plnt{name}")]
        for name in ("Phase", "Model")
    }
    assert values == {"Phase": "Pending", "Model": "org/small"}
    assert found.typed_search_attributes[SearchAttributeKey.for_int("PlntGeneration")] == 1
    assert await found.static_summary() == "org/small on vllm"
    assert await bridge.server.rollout(bridge.name).query("pokes") == 1


async def test_new_generation_pokes_the_open_run(bridge: Bridge) -> None:
    await bridge.tell()
    bridge.server.api.put(bridge.name, uid=f"uid-of-{bridge.name}", generation=2)
    await bridge.tell()
    assert await bridge.server.rollout(bridge.name).query("pokes") == 2
    assert await bridge.runs() == 1
    await eventually(lambda: bridge.server.status(bridge.name).get("observedGeneration") == 2)


@pytest.mark.parametrize(
    ("how", "phase"),
    [
        pytest.param("completed", "Ready", id="completed"),
        pytest.param("failed", "RolledBack", id="failed"),
        pytest.param("open", "RolledBack", id="cancelled"),
    ],
)
async def test_settled_object_gets_no_new_run_after_a_restart(bridge: Bridge, how: Any, phase: str) -> None:
    await bridge.tell()
    await bridge.end(how)
    await bridge.restart()
    await bridge.tell(listed=True)
    await eventually(lambda: bridge.server.status(bridge.name).get("phase") == phase)
    for _ in range(3):
        await bridge.tell(listed=True)
    assert await bridge.runs() == 1


async def test_terminated_run_is_repaired_at_the_next_list(bridge: Bridge) -> None:
    await bridge.tell()
    await bridge.server.rollout(bridge.name).terminate()
    await bridge.tell(listed=True)
    await bridge.until_runs(2)


async def test_run_that_closed_for_an_older_identity_is_followed_by_a_new_one(bridge: Bridge) -> None:
    await bridge.tell()
    await bridge.end(identity="older")
    await bridge.restart()
    await bridge.tell(listed=True)
    await bridge.until_runs(2)


async def test_open_run_is_poked_once_after_a_restart(bridge: Bridge) -> None:
    await bridge.tell()
    await bridge.restart()
    await bridge.tell(listed=True)
    await bridge.tell(listed=True)
    assert await bridge.server.rollout(bridge.name).query("pokes") == 2
    assert await bridge.runs() == 1


async def test_changed_annotation_alone_pokes(bridge: Bridge) -> None:
    await bridge.tell()
    annotations = {"plnt.work/bake-seconds": "5"}
    bridge.server.api.put(bridge.name, uid=f"uid-of-{bridge.name}", annotations=annotations)
    await bridge.tell()
    assert await bridge.server.rollout(bridge.name).query("pokes") == 2


async def test_object_that_went_without_a_teardown_gets_a_run_that_takes_down_what_it_left(bridge: Bridge) -> None:
    await bridge.tell()
    await bridge.end()
    change = Change(bridge.server.seen(bridge.name), gone=True)
    bridge.server.api.remove(bridge.name)
    bridge.dispatcher.offer(change)
    await bridge.server.reporter(bridge.name).result()
    await bridge.until_idle()
    await bridge.until_runs(2)


async def test_object_that_went_in_order_gets_no_run(bridge: Bridge) -> None:
    await bridge.tell()
    await bridge.end()
    seen = bridge.server.seen(bridge.name).model_copy(update={"deleting": True})
    bridge.server.api.remove(bridge.name)
    bridge.dispatcher.offer(Change(seen, gone=True))
    await bridge.server.reporter(bridge.name).result()
    await bridge.until_idle()
    assert await bridge.runs() == 1


async def test_missing_object_ends_its_reporter_and_wakes_its_run_but_starts_none(bridge: Bridge) -> None:
    await bridge.tell()
    change = Change(bridge.server.seen(bridge.name), gone=True, listed=True)
    bridge.server.api.remove(bridge.name)
    bridge.dispatcher.offer(change)
    await bridge.server.reporter(bridge.name).result()
    await bridge.until_idle()
    assert await bridge.server.rollout(bridge.name).query("pokes") == 2
    await bridge.server.rollout(bridge.name).terminate()
    bridge.dispatcher.offer(change)
    await bridge.until_idle()
    assert await bridge.runs() == 1


class AbsentRuns(Runs):
    """Temporal that does not answer until told, or not for some."""

    is_absent = True
    absent_for: frozenset[str] | None = None
    """Names of WorkflowRuns; none = all."""

    async def poke(self, seen: Any) -> None:
        if self.is_absent and (self.absent_for is None or seen.name in self.absent_for):
            raise RPCError("no connection", RPCStatusCode.UNAVAILABLE, b"")
        await super().poke(seen)


async def test_outage_of_temporal_loses_no_event_and_only_the_latest_object_counts(server: BridgeServer) -> None:
    runs = AbsentRuns(server.client, rollout_queue=QUEUE)
    dispatcher = Dispatcher(runs)
    task = asyncio.create_task(dispatcher.run())
    for generation in (1, 2, 3):
        server.api.put("patient", uid="uid-of-patient", generation=generation)
        dispatcher.offer(Change(server.seen("patient")))
        await eventually(dispatcher.check_ready)
    runs.is_absent = False
    await eventually(lambda: not dispatcher._work)
    assert dispatcher.check_ready() == ""
    assert await server.rollout("patient").query("pokes") == 1
    await eventually(lambda: server.status("patient").get("observedGeneration") == 3)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_bridge_is_not_ready_while_one_object_cannot_be_passed_on_whatever_becomes_of_others(
    server: BridgeServer,
) -> None:
    runs = AbsentRuns(server.client, rollout_queue=QUEUE)
    runs.absent_for = frozenset({"stuck"})
    dispatcher = Dispatcher(runs)
    task = asyncio.create_task(dispatcher.run())
    server.api.put("stuck", uid="uid-of-stuck")
    dispatcher.offer(Change(server.seen("stuck")))
    await eventually(dispatcher.check_ready)
    for generation in (1, 2):
        server.api.put("passed", uid="uid-of-passed", generation=generation)
        dispatcher.offer(Change(server.seen("passed")))
        await eventually(lambda: set(dispatcher._work) == {("default", "stuck")})
        assert "first default/stuck" in dispatcher.check_ready()
    runs.is_absent = False
    await eventually(lambda: not dispatcher._work)
    assert dispatcher.check_ready() == ""
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
