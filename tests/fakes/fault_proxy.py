"""A proxy between a client and a real server that spoils the answers to ranged requests, one fault each."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import aiohttp
from aiohttp import web
from multidict import CIMultiDict

from tests.fakes.source_servers import serving

_HOP = {"connection", "transfer-encoding", "keep-alive", "content-length", "date", "server"}


@dataclass
class Upstream:
    """What the server behind answered."""

    status: int
    headers: CIMultiDict[str]
    body: bytes
    length: str = ""
    """Content-Length as it was sent."""


@dataclass
class FaultProxy:
    url: str = ""
    upstream: str = ""
    faults: list["Fault"] = field(default_factory=list)
    met: int = 0
    """Faults that a request has met."""
    released: asyncio.Event = field(default_factory=asyncio.Event)

    async def handle(self, request: web.Request) -> web.StreamResponse:
        answer = await self._ask(request)
        ranged = "Range" in request.headers and answer.status in {200, 206}
        if ranged and self.faults:
            self.met += 1
            return await self.faults.pop(0)(self, request, answer)
        if request.method == "HEAD":
            # The length is that of the body that a GET would have.
            answer.headers["Content-Length"] = answer.length
        return web.Response(status=answer.status, headers=answer.headers, body=answer.body)

    async def _ask(self, request: web.Request) -> Upstream:
        # The host as it was asked for: S3 signs it.
        headers = {key: value for key, value in request.headers.items() if key.lower() not in _HOP}
        data = await request.read()
        async with (
            aiohttp.ClientSession(auto_decompress=False) as session,
            session.request(
                request.method,
                f"{self.upstream}{request.raw_path}" if request.raw_path.startswith("/") else request.raw_path,
                headers=headers,
                data=data or None,
                allow_redirects=False,
            ) as answer,
        ):
            kept = CIMultiDict((key, value) for key, value in answer.headers.items() if key.lower() not in _HOP)
            return Upstream(answer.status, kept, await answer.read(), answer.headers.get("Content-Length", "0"))


Fault = Callable[[FaultProxy, web.Request, Upstream], Awaitable[web.StreamResponse]]


async def _begin(request: web.Request, answer: Upstream, count: int) -> web.StreamResponse:
    response = web.StreamResponse(status=answer.status, headers=answer.headers)
    response.content_length = len(answer.body)
    await response.prepare(request)
    await response.write(answer.body[:count])
    return response


async def cut(proxy: FaultProxy, request: web.Request, answer: Upstream) -> web.StreamResponse:
    """Close the connection in the middle of the body."""
    response = await _begin(request, answer, len(answer.body) // 2)
    assert request.transport is not None
    request.transport.close()
    return response


async def stall(proxy: FaultProxy, request: web.Request, answer: Upstream) -> web.StreamResponse:
    """Send the half, then nothing."""
    response = await _begin(request, answer, len(answer.body) // 2)
    await proxy.released.wait()
    return response


async def drip(proxy: FaultProxy, request: web.Request, answer: Upstream) -> web.StreamResponse:
    """Send some bytes one by one, then the rest."""
    response = await _begin(request, answer, 1)
    for at in range(1, min(20, len(answer.body))):
        await response.write(answer.body[at : at + 1])
        await asyncio.sleep(0.02)
    await response.write(answer.body[20:])
    return response


async def flip(proxy: FaultProxy, request: web.Request, answer: Upstream) -> web.StreamResponse:
    """Change a byte."""
    middle = len(answer.body) // 2
    body = answer.body[:middle] + bytes([answer.body[middle] ^ 1]) + answer.body[middle + 1 :]
    return web.Response(status=answer.status, headers=answer.headers, body=body)


async def shorten(proxy: FaultProxy, request: web.Request, answer: Upstream) -> web.StreamResponse:
    """Answer with less than was asked for, and say so."""
    first, rest = answer.headers["Content-Range"].removeprefix("bytes ").split("-")
    body = answer.body[: len(answer.body) // 2 + 1]
    headers = CIMultiDict(answer.headers)
    headers["Content-Range"] = f"bytes {first}-{int(first) + len(body) - 1}/{rest.split('/')[1]}"
    return web.Response(status=206, headers=headers, body=body)


def refuse(status: int, **headers: str) -> Fault:
    """Answer with a status."""

    async def answer(proxy: FaultProxy, request: web.Request, upstream: Upstream) -> web.StreamResponse:
        return web.Response(status=status, headers={key.replace("_", "-"): value for key, value in headers.items()})

    return answer


@asynccontextmanager
async def running_fault_proxy(upstream: str) -> AsyncIterator[FaultProxy]:
    """Run a proxy before ``upstream``."""
    proxy = FaultProxy(upstream=upstream)
    app = web.Application(client_max_size=1 << 30)
    app.router.add_route("*", "/{path:.*}", proxy.handle)
    async with serving(app) as port:
        proxy.url = f"http://127.0.0.1:{port}"
        try:
            yield proxy
        finally:
            proxy.released.set()
