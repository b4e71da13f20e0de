"""Requests through istiod and Envoy: what a weight or a lost endpoint does to them."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from plnt.clients.kube import ENDPOINT_SLICES, SERVICES, VIRTUAL_SERVICES, Kube, Object
from plnt.model import names
from plnt.sandbox.addresses import listen_address, pod_address
from plnt.sandbox.cluster import open_kube
from plnt.sandbox.programs import Programs
from plnt.sandbox.running import running_sandbox
from plnt.sandbox.waiting import wait_until

PARTS = ("etcd", "kube-apiserver", "kube-controller-manager", "istiod", "envoy", "mesh")
SECONDS = 60.0

pytestmark = pytest.mark.timeout(240)


class Engine:
    """An HTTP server on a pod's address that says its name, at once or as a stream that waits for leave to end."""

    def __init__(self, name: str, reported: str) -> None:
        self.name, self.reported = name, reported
        self.may_end = asyncio.Event()

    async def say(self, _: web.Request) -> web.Response:
        return web.Response(text=self.name)

    async def stream(self, request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(b"first\n")
        await self.may_end.wait()
        await response.write(b"last\n")
        return response


@asynccontextmanager
async def serving(engine: Engine) -> AsyncIterator[None]:
    app = web.Application()
    app.router.add_get("/", engine.say)
    app.router.add_get("/stream", engine.stream)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, listen_address(engine.reported), names.SERVICE_PORT).start()
    try:
        yield
    finally:
        await runner.cleanup()


class Mesh:
    """The cluster, two engines, and a client behind Envoy."""

    def __init__(self, kube: Kube, session: aiohttp.ClientSession, proxy: str, engines: list[Engine]) -> None:
        self.kube, self.session, self.proxy = kube, session, proxy
        self.stable, self.canary = engines

    def get(self, service: str, path: str = "/") -> Any:
        url = f"http://{names.service_host(service, 'default')}:{names.SERVICE_PORT}{path}"
        return self.session.get(url, proxy=self.proxy)

    async def ask(self, service: str) -> str:
        async with self.get(service) as response:
            return await response.text() if response.status == 200 else str(response.status)

    async def opens(self) -> None:
        """Wait until Envoy knows its first routes."""

        async def hold() -> bool:
            try:
                return await self.ask("stable") == "stable"
            except aiohttp.ClientConnectionError:
                return False

        await wait_until(hold, SECONDS)

    async def answers(self, service: str, *expected: str) -> None:
        async def hold() -> bool:
            return {await self.ask(service) for _ in range(4 * len(expected))} == set(expected)

        await wait_until(hold, SECONDS)

    async def point(self, service: str, ready: Mapping[Engine, bool]) -> None:
        """Give a Service these endpoints."""
        await self.kube.apply(
            SERVICES, manifest("v1", "Service", service, spec={"ports": [{"name": "http", "port": 8000}]})
        )
        endpoints = [{"addresses": [e.reported], "conditions": {"ready": is_ready}} for e, is_ready in ready.items()]
        body = manifest(ENDPOINT_SLICES.api, "EndpointSlice", service, addressType="IPv4", endpoints=endpoints)
        body["metadata"]["labels"] = {"kubernetes.io/service-name": service}
        body["ports"] = [{"name": "http", "port": names.SERVICE_PORT}]
        await self.kube.apply(ENDPOINT_SLICES, body)

    async def route(self, front: str, **weights: int) -> None:
        """Split requests to a Service without endpoints of its own between others."""
        await self.point(front, {})
        to = [
            {"destination": {"host": names.service_host(name, "default"), "port": {"number": 8000}}, "weight": weight}
            for name, weight in weights.items()
        ]
        spec = {"hosts": [names.service_host(front, "default")], "http": [{"route": to}]}
        await self.kube.apply(VIRTUAL_SERVICES, manifest(VIRTUAL_SERVICES.api, "VirtualService", front, spec=spec))


def manifest(api: str, kind: str, name: str, **parts: Any) -> Object:
    return {"apiVersion": api, "kind": kind, "metadata": {"namespace": "default", "name": name}, **parts}


@pytest.fixture(scope="module")
async def mesh(tmp_path_factory: pytest.TempPathFactory, programs: Programs) -> AsyncIterator[Mesh]:
    async with AsyncExitStack() as stack:
        sandbox = await stack.enter_async_context(
            running_sandbox(tmp_path_factory.mktemp("mesh"), programs, only=PARTS)
        )
        engines = [
            Engine(name, pod_address(sandbox.site.block.range, i)) for i, name in enumerate(("stable", "canary"))
        ]
        for engine in engines:
            await stack.enter_async_context(serving(engine))
        kube = await stack.enter_async_context(open_kube(sandbox.kubeconfig))
        session = await stack.enter_async_context(aiohttp.ClientSession())
        mesh = Mesh(kube, session, sandbox.site.envoy, engines)
        await mesh.point("stable", {mesh.stable: True})
        await mesh.point("canary", {mesh.canary: True})
        await mesh.opens()
        yield mesh


async def test_service_without_ready_endpoints_answers_503(mesh: Mesh) -> None:
    await mesh.point("empty", {mesh.stable: False})
    await mesh.answers("empty", "503")


async def test_endpoint_that_loses_readiness_gets_no_more_requests(mesh: Mesh) -> None:
    await mesh.point("pair", {mesh.stable: True, mesh.canary: True})
    await mesh.answers("pair", "stable", "canary")
    await mesh.point("pair", {mesh.stable: True, mesh.canary: False})
    await mesh.answers("pair", "stable")


async def test_weights_split_the_requests(mesh: Mesh) -> None:
    await mesh.route("split", stable=80, canary=20)
    await mesh.answers("split", "stable", "canary")
    seen = Counter([await mesh.ask("split") for _ in range(500)])
    assert seen.total() == seen["stable"] + seen["canary"]
    assert 60 <= seen["canary"] <= 140


async def test_stream_under_way_outlives_its_route_and_its_endpoint(mesh: Mesh) -> None:
    await mesh.route("moved", stable=100)
    await mesh.answers("moved", "stable")
    async with mesh.get("moved", "/stream") as response:
        assert await response.content.readline() == b"first\n"
        await mesh.route("moved", canary=100)
        await mesh.answers("moved", "canary")
        await mesh.point("stable", {mesh.stable: False})
        await mesh.answers("stable", "503")
        mesh.stable.may_end.set()
        assert await response.content.readline() == b"last\n"
    await mesh.point("stable", {mesh.stable: True})


async def test_no_request_fails_while_weights_and_endpoints_change(mesh: Mesh) -> None:
    await mesh.point("other", {})
    await mesh.route("busy", stable=100)
    await mesh.answers("busy", "stable")
    seen: Counter[str] = Counter()
    changing = True

    async def send() -> None:
        while changing:
            seen[await mesh.ask("busy")] += 1

    senders = [asyncio.create_task(send()) for _ in range(3)]
    for step in range(10):
        await mesh.route("busy", stable=100 - 10 * step, canary=10 * step)
        await mesh.point("other", {mesh.stable: step % 2 == 0})
        await mesh.point("canary", {mesh.canary: True} | ({mesh.stable: True} if step % 2 else {}))
        await mesh.answers("other", "stable" if step % 2 == 0 else "503")
    changing = False
    await asyncio.gather(*senders)
    assert set(seen) <= {"stable", "canary"}
