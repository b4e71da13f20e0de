"""A proxy that bounds the rate of each connection, as large object stores do, and counts what it sends.

Bytes go through pipes inside the kernel, a thread a direction: the proxy takes next to nothing of the CPU.
"""

import fcntl
import os
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

PIECE = 256 << 10
F_SETPIPE_SZ = 1031
BURST_SECONDS = 0.02
"""What a connection that was slow may catch up."""


@dataclass
class CappedProxy:
    """Stands before ``port`` of this machine."""

    upstream: int
    bytes_per_second: float | None
    port: int = 0
    served: int = 0
    """Bytes that went to clients."""

    def serve(self, listener: socket.socket) -> None:
        """Take connections until the listener is closed."""
        with suppress(OSError):
            while True:
                client, _ = listener.accept()
                # What lies in this proxy's own buffers would count as served.
                client.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 16)
                server = socket.create_connection(("127.0.0.1", self.upstream))
                for way in ((client, server, False), (server, client, True)):
                    threading.Thread(target=self._pump, args=way, daemon=True).start()

    def _pump(self, source: socket.socket, target: socket.socket, is_answer: bool) -> None:  # noqa: FBT001 - a thread's body
        out, into = os.pipe()
        fcntl.fcntl(into, F_SETPIPE_SZ, PIECE)
        due = time.monotonic()
        with suppress(OSError):
            while count := os.splice(source.fileno(), into, PIECE):
                while count:
                    sent = os.splice(out, target.fileno(), count)
                    count -= sent
                    if is_answer:
                        self.served += sent
                        due = self._wait(sent, due)
        for end in (source, target):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
        os.close(out)
        os.close(into)

    def _wait(self, sent: int, due: float) -> float:
        if self.bytes_per_second is None:
            return due
        now = time.monotonic()
        due = max(due, now - BURST_SECONDS) + sent / self.bytes_per_second
        if due > now:
            time.sleep(due - now)
        return due


@contextmanager
def capped_proxy(upstream: int, bytes_per_second: float | None = None) -> Iterator[CappedProxy]:
    """Run a proxy before a port of this machine; no rate = it only counts."""
    with socket.create_server(("127.0.0.1", 0), backlog=128) as listener:
        proxy = CappedProxy(upstream, bytes_per_second, listener.getsockname()[1])
        threading.Thread(target=proxy.serve, args=(listener,), daemon=True).start()
        yield proxy
