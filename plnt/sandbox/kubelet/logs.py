"""Containers' logs over TLS, as ``kubectl logs`` asks a kubelet for them through the API server."""

import asyncio
import ssl
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import BinaryIO

from aiohttp import web

from plnt.sandbox.kubelet.container import Container
from plnt.sandbox.kubelet.status import Waiting

Find = Callable[[str, str, str], Container | None]
"""Finds a container by namespace, pod and name."""
_POLL_SECONDS = 0.1
_CHUNK = 65536
_CUT_SECONDS = 0.01
"""How long followers are waited for at the end; 0 would mean for ever."""


@asynccontextmanager
async def serve_logs(find: Find, port: int, pki: Path) -> AsyncIterator[None]:
    """Serve logs on ``port`` while the context is open, to clients with a certificate of the sandbox's authority."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=pki / "ca.crt")
    context.load_cert_chain(pki / "kubelet.crt", pki / "kubelet.key")
    context.verify_mode = ssl.CERT_REQUIRED
    app = web.Application()
    app.router.add_get("/containerLogs/{namespace}/{pod}/{container}", LogRequests(find).answer)
    runner = web.AppRunner(app, access_log=None, handler_cancellation=True, shutdown_timeout=_CUT_SECONDS)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", port, ssl_context=context).start()
        yield
    finally:
        await runner.cleanup()


class LogRequests:
    """Answers requests for logs; timestamps and ``sinceSeconds`` are not kept by the simulated node."""

    def __init__(self, find: Find) -> None:
        """Use ``find`` to look containers up."""
        self._find = find

    async def answer(self, request: web.Request) -> web.StreamResponse:
        """Stream the log that the request asks for."""
        namespace, pod, name = (request.match_info[key] for key in ("namespace", "pod", "container"))
        container = self._find(namespace, pod, name)
        if container is None:
            raise web.HTTPNotFound(text=f'pod "{namespace}/{pod}" with container "{name}" not found')
        path = container.previous_log if request.query.get("previous") == "true" else container.log
        if not path.exists():
            raise web.HTTPBadRequest(text=_explain(container, pod))
        response = web.StreamResponse()
        response.content_type = "text/plain"
        await response.prepare(request)
        with path.open("rb") as file:
            _skip_to_tail(file, request.query.get("tailLines"))
            await _copy(
                file, response, follow=request.query.get("follow") == "true" and container.log == path, of=container
            )
        return response


def _explain(container: Container, pod: str) -> str:
    state = container.view.state
    if isinstance(state, Waiting) and not container.view.last:
        return f'container "{container.name}" in pod "{pod}" is waiting to start: {state.message or state.reason}'
    return f'previous terminated container "{container.name}" in pod "{pod}" not found'


def _skip_to_tail(file: BinaryIO, lines: str | None) -> None:
    """Move to where the last ``lines`` lines begin."""
    if lines is None:
        return
    starts: deque[int] = deque(maxlen=int(lines))
    position = 0
    for line in file:
        starts.append(position)
        position += len(line)
    file.seek(starts[0] if starts else position)


async def _copy(file: BinaryIO, response: web.StreamResponse, *, follow: bool, of: Container) -> None:
    path = of.log
    while True:
        is_live = follow and of.running and of.log == path
        while chunk := file.read(_CHUNK):
            await response.write(chunk)
        if not is_live:
            return
        await asyncio.sleep(_POLL_SECONDS)
