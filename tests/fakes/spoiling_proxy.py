"""A proxy before a real S3 server that spoils answers to ranged requests, by a seeded choice."""

import asyncio
import random
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from enum import StrEnum

import aiohttp
from aiohttp import web
from multidict import CIMultiDict
from yarl import URL

DRIBBLES, DRIBBLE_SECONDS = 20, 0.01
_HOP = frozenset({"connection", "keep-alive", "transfer-encoding", "date", "server", "content-length"})


class Spoil(StrEnum):
    """What goes wrong with one answer."""

    CUT = "cut"
    """The connection breaks at some byte."""
    STALL = "stall"
    """At some byte nothing more comes."""
    SLOW = "slow"
    """A while a few bytes at a time."""
    WRONG = "wrong"
    """One bit is flipped, once a file."""
    SHORT = "short"
    """A well-formed answer with fewer bytes than were asked for."""
    STORM = "storm"
    """Some 500 and 503 in a row."""
    BUSY = "busy"
    """429 with Retry-After."""
    UNRANGED = "unranged"
    """416 for a range that exists."""


STORM_ANSWERS = 3


class FaultProxy:
    """Every ranged answer meets a fault with probability ``rate``."""

    def __init__(self, target: str, spoils: Sequence[Spoil], rate: float, seed: int) -> None:
        self.endpoint = ""
        self.met: list[Spoil] = []
        """Faults that were made, in order."""
        self._target, self._spoils, self._rate = target, spoils, rate
        self._random = random.Random(seed)
        self._storm = 0
        self._spoiled: set[str] = set()
        self._released = asyncio.Event()

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """Pass one request on."""
        spoil = self._choose(request)
        if spoil in {Spoil.STORM, Spoil.BUSY, Spoil.UNRANGED}:
            return _refuse(spoil, self._random)
        url = URL(self._target + request.raw_path, encoded=True)
        body = await request.read() if request.can_read_body else None
        async with (
            aiohttp.ClientSession(auto_decompress=False) as session,
            session.request(request.method, url, headers=request.headers, data=body) as answer,
        ):
            data = await answer.read()
            headers = CIMultiDict((key, value) for key, value in answer.headers.items() if key.lower() not in _HOP)
            if request.method == "HEAD":
                headers["Content-Length"] = answer.headers.get("Content-Length", "0")
                return web.Response(status=answer.status, headers=headers)
            return await self._send(request, answer.status, headers, data, spoil)

    def _choose(self, request: web.Request) -> Spoil | None:
        if "Range" not in request.headers:
            return None
        if self._storm:
            self._storm -= 1
            return Spoil.STORM
        if self._random.random() > self._rate:
            return None
        spoil = self._random.choice(self._spoils)
        if spoil is Spoil.WRONG and request.path in self._spoiled:
            return None
        if spoil is Spoil.STORM:
            self._storm = STORM_ANSWERS - 1
        if spoil is Spoil.WRONG:
            self._spoiled.add(request.path)
        self.met.append(spoil)
        return spoil

    async def _send(
        self, request: web.Request, status: int, headers: CIMultiDict[str], data: bytes, spoil: Spoil | None
    ) -> web.StreamResponse:
        at = self._random.randrange(len(data)) if data else 0
        if spoil is Spoil.WRONG and data:
            data = data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]
        if spoil is Spoil.SHORT:
            data = data[: max(1, at)]
        response = web.StreamResponse(status=status, headers=headers)
        response.content_length = len(data)
        await response.prepare(request)
        if spoil is Spoil.SLOW:
            for start in range(DRIBBLES):
                await response.write(data[start * 10 : start * 10 + 10])
                await asyncio.sleep(DRIBBLE_SECONDS)
            data = data[DRIBBLES * 10 :]
        if spoil in {Spoil.CUT, Spoil.STALL}:
            await response.write(data[:at])
            if spoil is Spoil.STALL:
                await self._released.wait()
            if request.transport is not None:
                request.transport.abort()
            return response
        await response.write(data)
        return response

    def release(self) -> None:
        """Let what hangs on purpose end."""
        self._released.set()


def _refuse(spoil: Spoil, chance: random.Random) -> web.Response:
    if spoil is Spoil.BUSY:
        return web.Response(status=429, headers={"Retry-After": "0"})
    return web.Response(status=416 if spoil is Spoil.UNRANGED else chance.choice([500, 503]))


@asynccontextmanager
async def fault_proxy(
    target: str, spoils: Sequence[Spoil], *, rate: float = 0.3, seed: int = 1
) -> AsyncIterator[FaultProxy]:
    """Run the proxy on a free port of the loopback."""
    proxy = FaultProxy(target, spoils, rate, seed)
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", proxy.handle)
    runner = web.AppRunner(app, shutdown_timeout=0.2)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    proxy.endpoint = f"http://127.0.0.1:{runner.addresses[0][1]}"
    try:
        yield proxy
    finally:
        proxy.release()
        await runner.cleanup()
