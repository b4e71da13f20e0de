"""The real servers of gs:// and oci://, and the sandbox's Hub, on ports of their own."""

import asyncio
import json
import os
import socket
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import aiohttp
import pytest
from aiohttp import web

from plnt.sandbox.sources.components import gs_command, render_registry
from plnt.sandbox.sources.hub import Hub
from plnt.sandbox.sources.servers import find_source_servers
from plnt.settings import PoolSettings


@dataclass
class SourceServers:
    gs: str
    registry: str
    hub_url: str
    hub: Hub
    hub_root: Path

    @property
    def registry_host(self) -> str:
        return self.registry.removeprefix("http://")

    def settings(self, environ: Mapping[str, str] | None = None) -> PoolSettings:
        """Settings of a pool whose operator named all of them."""
        own = {
            "STORAGE_EMULATOR_HOST": self.gs,
            "HF_ENDPOINT": self.hub_url,
            "PLNT_WEIGHTS_PRIVATE_HOSTS": f"{self.registry_host},{self.hub_url[7:].replace('127.0.0.1', 'localhost')}",
        }
        return PoolSettings.read({**own, **(environ or {})})


def free_port() -> int:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        return int(held.getsockname()[1])


async def wait_answer(url: str) -> None:
    async with asyncio.timeout(60), aiohttp.ClientSession() as session:
        while True:
            try:
                async with session.get(url) as answer:
                    if answer.status < 500:
                        return
            except aiohttp.ClientError:
                pass
            await asyncio.sleep(0.05)


@asynccontextmanager
async def running_process(*command: str) -> AsyncIterator[None]:
    process = await asyncio.create_subprocess_exec(
        *command,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
        env={**os.environ, "OTEL_TRACES_EXPORTER": "none"},
    )
    try:
        yield
    finally:
        process.kill()
        await process.wait()


@asynccontextmanager
async def running_registry(root: Path, auth: Mapping[str, object] | None = None) -> AsyncIterator[str]:
    """Run a registry and give its URL."""
    port = free_port()
    config = _write_config(root, port, auth)
    async with running_process(str(find_folder() / "registry"), "serve", str(config)):
        await wait_answer(f"http://127.0.0.1:{port}/v2/")
        yield f"http://127.0.0.1:{port}"


@asynccontextmanager
async def serving(app: web.Application) -> AsyncIterator[int]:
    """Serve an application on loopback and give its port."""
    runner = web.AppRunner(app, shutdown_timeout=0.2)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        yield runner.addresses[0][1]
    finally:
        await runner.cleanup()


@asynccontextmanager
async def running_source_servers(root: Path) -> AsyncIterator[SourceServers]:
    """Run all three."""
    hub = Hub(root / "hub")
    gs_port = free_port()
    async with (
        running_process(*gs_command(find_folder(), root / "gs", gs_port)),
        running_registry(root / "registry") as registry,
        serving(hub.make_app()) as hub_port,
    ):
        gs = f"http://127.0.0.1:{gs_port}"
        await wait_answer(f"{gs}/_internal/healthcheck")
        yield SourceServers(gs, registry, f"http://127.0.0.1:{hub_port}", hub, root / "hub")


def find_folder() -> Path:
    """Give the folder of the built servers."""
    servers = find_source_servers(os.environ)
    if servers is None:
        pytest.fail("the servers of the sources are not built: run `plnt build --sources` first (5 minutes, once)")
    return servers.folder


def _write_config(root: Path, port: int, auth: Mapping[str, object] | None) -> Path:
    root.mkdir(parents=True, exist_ok=True)
    config = root / "registry.json"
    config.write_text(json.dumps({**render_registry(root / "data", port), **({"auth": auth} if auth else {})}))
    return config
