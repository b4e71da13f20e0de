"""The ``/healthz`` and ``/readyz`` endpoints of a process."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from aiohttp import web

Check = Callable[[], str]
"""Gives an empty string when well, else one line that says what is not."""


def _answer(check: Check) -> Callable[[web.Request], "web.StreamResponse | object"]:
    async def handle(_: web.Request) -> web.Response:
        fault = check()
        return web.Response(status=503 if fault else 200, text=(fault or "ok") + "\n")

    return handle


@asynccontextmanager
async def serve_health(host: str, port: int, alive: Check, ready: Check) -> AsyncIterator[None]:
    """Serve the endpoints while the context is open; port 0 serves nothing."""
    if not port:
        yield
        return
    app = web.Application()
    app.router.add_get("/healthz", _answer(alive))  # type: ignore[arg-type]
    app.router.add_get("/readyz", _answer(ready))  # type: ignore[arg-type]
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    try:
        await web.TCPSite(runner, host, port).start()
        yield
    finally:
        await runner.cleanup()
