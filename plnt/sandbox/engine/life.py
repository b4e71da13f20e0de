"""An engine from listening to its end: SIGTERM and draining, or a crash that the model's faults order."""

import asyncio
import contextlib
import os
import signal
import sys
import time

from aiohttp import web

from plnt.sandbox.engine.behaviour import Behaviour
from plnt.sandbox.engine.command_line import Engine
from plnt.sandbox.engine.launch import Launch
from plnt.sandbox.engine.server import Server

_POLL_SECONDS = 0.02
_CUT_SECONDS = 0.01
"""How long aiohttp waits for handlers at the end; 0 would mean for ever."""
_FLUSH_SECONDS = 0.1
"""From the last answer before a crash to the crash, so that the answer leaves whole."""


async def serve(launch: Launch, behaviour: Behaviour, max_length: int, pod: str) -> int:
    """Serve until SIGTERM or an ordered crash; gives the exit code."""
    server = Server(launch, behaviour, max_length, pod)
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    runner = web.AppRunner(
        server.build_app(), access_log=None, handler_cancellation=True, shutdown_timeout=_CUT_SECONDS
    )
    await runner.setup()
    try:
        site = await _listen(runner, launch)
    except OSError as error:
        print(f"OSError: {error.strerror} ({launch.host}:{launch.port})", file=sys.stderr)
        await runner.cleanup()
        return 1
    code = await _run_until(stop, server)
    if code is None:
        await _drain(server, site)
    await runner.cleanup()
    return code or 0


async def _listen(runner: web.AppRunner, launch: Launch) -> web.TCPSite:
    """Bind the pod's address; an engine that binds its own loopback gets a port that nobody finds, as in a real pod."""
    alone = launch.host == "localhost"
    site = web.TCPSite(runner, "127.0.0.1" if alone else launch.host, 0 if alone else launch.port)
    await site.start()
    print(f"INFO listening on http://{launch.host}:{launch.port}", flush=True)
    return site


async def _run_until(stop: asyncio.Event, server: Server) -> int | None:
    """Wait for SIGTERM (gives none) or for a crash that the model's faults order (gives the exit code)."""
    faults = server.behaviour.faults
    begun = time.monotonic()
    while not stop.is_set():
        after = faults.crash_after_seconds
        if after is not None and time.monotonic() >= begun + after:
            return _crash(faults.exit_code)
        if faults.crash_after_requests is not None and server.answered >= faults.crash_after_requests:
            await asyncio.sleep(_FLUSH_SECONDS)
            return _crash(faults.exit_code)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(stop.wait(), _POLL_SECONDS if faults.crash_after_requests or after else None)
    return None


def _crash(code: int | None) -> int:
    """End the process as a fault does: no answer under way is finished."""
    print("ERROR EngineCore died unexpectedly", file=sys.stderr, flush=True)
    os._exit(1 if code is None else code)


async def _drain(server: Server, site: web.TCPSite) -> None:
    """Let requests in flight end by the engine's rule.

    vLLM goes on listening for ``--shutdown-timeout`` seconds and aborts what comes; SGLang goes on serving and is
    not ready; TGI and trtllm-serve stop listening.
    """
    server.draining = True
    print("INFO shutting down, waiting for requests in flight", flush=True)
    if server.launch.engine in {Engine.TGI, Engine.TRTLLM}:
        await site.stop()
    limit = server.launch.drain_seconds
    end = None if limit is None else time.monotonic() + limit
    while server.meter.running and (end is None or time.monotonic() < end):  # noqa: ASYNC110  (a number, no event)
        await asyncio.sleep(_POLL_SECONDS)
