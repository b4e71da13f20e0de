"""A TCP proxy that counts what the server behind it sends."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from urllib.parse import urlsplit

CHUNK = 65_536


class CountingProxy:
    """Passes bytes both ways; ``target`` may be set after the start."""

    def __init__(self) -> None:
        self.url = ""
        self.target = ""
        self.served = 0
        """Bytes that went from the server to clients."""

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection."""
        where = urlsplit(self.target)
        try:
            upstream, downstream = await asyncio.open_connection(where.hostname, where.port)
        except OSError:
            writer.close()
            return
        await asyncio.gather(self._pass(reader, downstream, count=False), self._pass(upstream, writer, count=True))

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, count: bool) -> None:
        with suppress(OSError):
            while chunk := await reader.read(CHUNK):
                self.served += len(chunk) * count
                writer.write(chunk)
                await writer.drain()
        with suppress(OSError):
            writer.close()


@asynccontextmanager
async def counting_proxy() -> AsyncIterator[CountingProxy]:
    """Run a proxy on a free port of the loopback."""
    proxy = CountingProxy()
    server = await asyncio.start_server(proxy.handle, "127.0.0.1", 0)
    proxy.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield proxy
    finally:
        server.close()
