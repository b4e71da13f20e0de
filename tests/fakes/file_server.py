"""A source of weights whose every answer a test can choose: a real HTTP server, and the Source that leads to it."""

import asyncio
import hashlib
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager

from aiohttp import web

from plnt.clients.weights.credentials import Credentials
from plnt.clients.weights.source import Link
from plnt.model.pull_plan import PlannedFile
from plnt.model.storage_uri import StorageUri

Fault = Callable[[web.Request, bytes], Awaitable[web.StreamResponse]]

RELEASED = web.AppKey("released", asyncio.Event)
"""Set when the server ends, so that an answer that hangs on purpose ends too."""


class FileServer:
    """Serves ``files`` with ranges; the next requests meet the ``faults``, one each."""

    ca_bundle: str | None = None
    packed = None

    def __init__(self, files: dict[str, bytes]) -> None:
        self.files = files
        self.faults: list[Fault] = []
        self.always: Fault | None = None
        self.published: dict[str, str] = {}
        self.where = "s3://test-bucket/model"
        self.port = 0
        self.scheme = "http"
        self.links = 0
        self.requests: list[tuple[str, str]] = []
        self.served = 0
        self.trusts_itself = True
        self.released = asyncio.Event()

    @property
    def trusted_hosts(self) -> frozenset[str]:
        return frozenset({f"127.0.0.1:{self.port}"}) if self.trusts_itself else frozenset()

    async def list_files(self) -> dict[str, int]:
        return {path: len(data) for path, data in self.files.items()}

    async def pin_file(self, path: str) -> PlannedFile:
        data = self.files[path]
        return PlannedFile(path=path, size=len(data), validator=_etag(data), sha256=self.published.get(path, ""))

    async def read_file(self, file: PlannedFile) -> bytes:
        return self.files[file.path]

    async def make_link(self, file: PlannedFile) -> Link:
        self.links += 1
        return Link(f"{self.scheme}://127.0.0.1:{self.port}/{file.path}?signature={self.links}")

    def open(
        self, uri: StorageUri, credentials: Credentials | None = None
    ) -> AbstractAsyncContextManager["FileServer"]:
        return _given(self)

    async def handle(self, request: web.Request) -> web.StreamResponse:
        path = request.match_info["path"]
        self.requests.append((path, request.headers.get("Range", "")))
        data = self.files.get(path)
        if data is None:
            return web.Response(status=404)
        fault = self.faults.pop(0) if self.faults else self.always
        return await fault(request, data) if fault else self.serve(request, data)

    def serve(self, request: web.Request, data: bytes) -> web.Response:
        if request.headers.get("If-Match", f'"{_etag(data)}"') != f'"{_etag(data)}"':
            return web.Response(status=412)
        first, last = parse_range(request)
        body = data[first : last + 1]
        self.served += len(body)
        headers = {"Content-Range": f"bytes {first}-{last}/{len(data)}", "ETag": f'"{_etag(data)}"'}
        return web.Response(status=206, body=body, headers=headers)


def _etag(data: bytes) -> str:
    return hashlib.md5(data, usedforsecurity=False).hexdigest()


def parse_range(request: web.Request) -> tuple[int, int]:
    """Give first and last byte of the request's Range."""
    first, last = request.headers["Range"].removeprefix("bytes=").split("-")
    return int(first), int(last)


@asynccontextmanager
async def _given(server: FileServer) -> AsyncIterator[FileServer]:
    yield server


@asynccontextmanager
async def running_file_server(files: dict[str, bytes], tls: ssl.SSLContext | None = None) -> AsyncIterator[FileServer]:
    """Run the server."""
    server = FileServer(files)
    app = web.Application()
    app[RELEASED] = server.released
    app.router.add_get("/{path:.*}", server.handle)
    runner = web.AppRunner(app, shutdown_timeout=0.2)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=tls)
    await site.start()
    server.port = runner.addresses[0][1]
    server.scheme = "https" if tls else "http"
    try:
        yield server
    finally:
        server.released.set()
        await runner.cleanup()
