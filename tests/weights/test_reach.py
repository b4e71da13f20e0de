"""How hosts are reached: TLS with the operator's authority, HTTP proxies."""

import asyncio
import random
import ssl
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from plnt.clients.weights.cache import Cache
from plnt.clients.weights.pull import Pull, PullSettings
from plnt.clients.weights.throttle import Throttle
from plnt.errors import SourceUnavailable
from plnt.model.pull_plan import PullPlan
from plnt.sandbox.pki import Authority
from tests.fakes.file_server import FileServer, running_file_server

DATA = random.Random(3).randbytes(9 << 20)


@pytest.fixture
async def secure(tmp_path: Path) -> AsyncIterator[FileServer]:
    authority = Authority(tmp_path / "pki")
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(*authority.issue("server", "server"))
    async with running_file_server({"data.bin": DATA}, context) as server:
        server.ca_bundle = str(authority.certificate)
        yield server


@dataclass
class Proxy:
    port: int = 0
    heads: list[str] = field(default_factory=list)


@pytest.fixture
async def proxy() -> AsyncIterator[Proxy]:
    """Tunnels CONNECT, and passes absolute requests on as they are."""
    proxy = Proxy()
    tasks: set[asyncio.Task[None]] = set()

    async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError):
            while data := await reader.read(1 << 16):
                writer.write(data)
                await writer.drain()
        writer.close()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        proxy.heads.append(head.decode())
        method, target = head.split(b" ")[:2]
        authority = target.decode().removeprefix("http://").partition("/")[0]
        upstream, downstream = await asyncio.open_connection("127.0.0.1", int(authority.rpartition(":")[2]))
        if method == b"CONNECT":
            writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
        else:
            downstream.write(head)
        for pair in ((reader, downstream), (upstream, writer)):
            task = asyncio.create_task(pump(*pair))
            tasks.add(task)
            task.add_done_callback(tasks.discard)

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    proxy.port = server.sockets[0].getsockname()[1]
    yield proxy
    server.close()
    for task in list(tasks):
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def pull(server: FileServer, cache: Cache) -> bytes:
    plan = PullPlan(source=server.where, files=[await server.pin_file(path) for path in server.files])
    settings = PullSettings(cache, server.open, Throttle(None), 2, pause_seconds=0.01)
    tree = await Pull(settings).run(cache.write_plan(plan))
    return (cache.root / "trees" / tree.digest / "data.bin").read_bytes()


async def test_files_come_over_tls_that_the_given_authority_signed(secure: FileServer, cache: Cache) -> None:
    assert await pull(secure, cache) == DATA


async def test_certificate_of_an_unknown_authority_is_refused(secure: FileServer, cache: Cache) -> None:
    secure.ca_bundle = None
    with pytest.raises(SourceUnavailable, match="certificate verify failed"):
        await pull(secure, cache)


@pytest.mark.parametrize("scheme", ["http", "https"])
async def test_files_come_through_the_proxy_of_the_environment(
    secure: FileServer, proxy: Proxy, cache: Cache, monkeypatch: pytest.MonkeyPatch, scheme: str
) -> None:
    monkeypatch.setenv(f"{scheme}_proxy", f"http://user:word@127.0.0.1:{proxy.port}")
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.setenv(name, "")
    async with running_file_server({"data.bin": DATA}) as plain:
        server = secure if scheme == "https" else plain
        assert await pull(server, cache) == DATA
    assert proxy.heads
    assert all("Proxy-Authorization: Basic dXNlcjp3b3Jk" in head for head in proxy.heads)
