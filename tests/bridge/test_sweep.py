"""Workflows whose object went while no bridge watched."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from bridge.sweep import Sweep
from plnt.model.poke import Key, pending_report
from tests.fakes.bridge_server import BridgeServer, serve_bridge
from tests.fakes.waiting import eventually


class Store:
    """What a watch knows."""

    def __init__(self, *keys: Key) -> None:
        self.keys, self.fault = set(keys), ""

    def check_ready(self) -> str:
        return self.fault

    def misses(self, key: Key) -> bool:
        return key not in self.keys


@pytest.fixture(scope="module")
async def server() -> AsyncIterator[BridgeServer]:
    async with serve_bridge() as server:
        yield server


async def open_reporter(server: BridgeServer, name: str) -> None:
    server.api.put(name, uid=f"uid-of-{name}")
    seen = server.seen(name)
    await server.runs.open_reporter(seen, pending_report(seen))
    await eventually(lambda: server.status(name).get("phase") == "Pending")


async def test_reporter_of_a_lost_object_ends_and_those_of_others_stay(server: BridgeServer) -> None:
    for name in ("lost", "known", "unseen"):
        await open_reporter(server, name)
    await server.runs.poke(server.seen("lost"))
    server.api.remove("lost")
    # The store may be behind the API server: what it does not know yet is looked at, and lives on.
    sweep = asyncio.create_task(Sweep(server.runs, [Store(("default", "known"))], 60).run())
    try:
        await asyncio.wait_for(server.reporter("lost").result(), 60)
        history = await server.rollout("lost").fetch_history()
        assert sum(event.HasField("workflow_execution_signaled_event_attributes") for event in history.events) == 2
    finally:
        sweep.cancel()
        await asyncio.gather(sweep, return_exceptions=True)
    assert await server.runs.list_open() == {("default", "lost"), ("default", "known"), ("default", "unseen")}


async def test_nothing_is_swept_before_the_objects_are_known(server: BridgeServer) -> None:
    await open_reporter(server, "early")
    server.api.remove("early")
    store = Store()
    store.fault = "not listed yet"
    sweep = asyncio.create_task(Sweep(server.runs, [store], 60).run())
    try:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(asyncio.shield(server.reporter("early").result()), 1.5)
        store.fault = ""
        await asyncio.wait_for(server.reporter("early").result(), 60)
    finally:
        sweep.cancel()
        await asyncio.gather(sweep, return_exceptions=True)
