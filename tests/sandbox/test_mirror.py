"""The mesh's copy of the cluster stays right whatever its watch does."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from aiohttp import web

from plnt.clients.kube import WORKFLOW_RUNS
from plnt.sandbox.mesh.mirror import Mirror
from tests.fakes.kube_api import Fault, KubeApi, send, serve_kube_api
from tests.fakes.waiting import eventually


async def end(_: web.StreamResponse) -> None:
    """End the watch as the server does after some minutes."""


async def expire(response: web.StreamResponse) -> None:
    await send(response, "ERROR", {"kind": "Status", "code": 410, "message": "too old resource version"})


async def talk_html(response: web.StreamResponse) -> None:
    await response.write(b"<html>bad gateway</html>\n")


async def cut(response: web.StreamResponse) -> None:
    await response.write(b'{"type": "ADDED", "obj')


@asynccontextmanager
async def mirrored(*faults: Fault) -> AsyncIterator[tuple[KubeApi, Mirror]]:
    """Run a mirror of WorkflowRuns on a cluster that holds one named ``first``."""
    async with serve_kube_api() as (api, kube):
        api.put("first")
        api.watch_faults.extend(faults)
        mirror = Mirror(kube, WORKFLOW_RUNS, lambda: None)
        running = asyncio.create_task(mirror.run())
        try:
            await eventually(lambda: api.watches > 0)
            yield api, mirror
        finally:
            assert not running.done(), "the mirror ended"
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)


async def await_names(mirror: Mirror, *names: str) -> None:
    await eventually(lambda: sorted(one["metadata"]["name"] for one in mirror.objects) == sorted(names))


async def test_events_are_followed() -> None:
    async with mirrored() as (api, mirror):
        api.put("second")
        await await_names(mirror, "first", "second")
        api.remove("first")
        await await_names(mirror, "second")
        assert (api.lists, api.watches) == (1, 1)


async def test_watch_that_ends_is_taken_up_where_it_ended() -> None:
    async with mirrored(end) as (api, mirror):
        api.put("second")
        await await_names(mirror, "first", "second")
        assert (api.lists, api.watches) == (1, 2)


@pytest.mark.parametrize("fault", [expire, talk_html, cut])
async def test_broken_watch_leads_to_a_new_list_that_also_shows_what_went(fault: Fault) -> None:
    async with mirrored(fault) as (api, mirror):
        api.put("second")
        api.remove("first", silently=True)
        await await_names(mirror, "second")
        assert api.lists == 2


async def test_copy_stays_as_last_seen_while_the_server_refuses() -> None:
    async with mirrored(expire) as (api, mirror):
        api.refusal = 503
        await eventually(lambda: not api.watch_faults)
        await await_names(mirror, "first")
        api.put("second")
        api.refusal = 0
        await await_names(mirror, "first", "second")
