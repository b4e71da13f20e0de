"""One connection of a mover thread: HTTP/1.1 requests by http.client, bodies straight from the socket.

Bodies read through http.client or an event loop cost a third to a half of the rate: 955 and 696 against 1137 MB/s
from one S3 server, with 8 connections on 2 cores.
"""

import http.client
import socket
import ssl
import struct
import threading
import time
import urllib.request
from base64 import b64encode
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from urllib.parse import SplitResult, unquote, urlsplit

from plnt.clients.weights.host_rule import HostRule
from plnt.clients.weights.source import Link

CONNECT_SECONDS = 10.0
FILL_SECONDS = 0.5
"""Longest wait for a full buffer where bytes come one by one, in seconds."""


@dataclass(frozen=True, slots=True)
class Reach:
    """How hosts are reached."""

    rule: HostRule
    make_tls: Callable[[], ssl.SSLContext]
    """Called at the first connection with TLS: reading the authorities takes 30 ms of CPU."""
    stall_seconds: float
    """Longest time without a byte before a connection is given up."""
    pause_seconds: float
    """Pause after the first fault that brought no byte; doubled after each further one."""
    receive_bytes: int | None = None
    """Size of sockets' receive buffers; none = the kernel's choice. What lies in them is lost with the process."""


class Answer:
    """The answer to one request; its body is read once, in order."""

    def __init__(self, response: http.client.HTTPResponse, sock: socket.socket) -> None:
        self.status = response.status
        self.headers: Mapping[str, str] = {key.lower(): value for key, value in response.getheaders()}
        self._response = response
        self._sock = sock
        self._left = response.length
        self._buffered: int | None = None

    def read_into(self, view: memoryview) -> int:
        """Fill the view from the body, in part or in whole; 0 = the body's end, as announced or as the peer made it."""
        if self._left is None:
            return self._response.readinto(view)
        if not self._left:
            return 0
        if self._buffered != 0:
            self._find_buffered()
        received = self._take_buffered(view) if self._buffered else self._receive(view[: self._left])
        self._left -= received
        return received

    def _find_buffered(self) -> None:
        """Learn how much http.client read beyond the head: only after that the socket is at the body's next byte."""
        if self._buffered is None:
            self._buffered = len(self._response.fp.peek())
            self._sock.settimeout(None)

    def _take_buffered(self, view: memoryview) -> int:
        data = self._response.fp.read(min(len(view), self._buffered or 0, self._left or 0))
        view[: len(data)] = data
        self._buffered = (self._buffered or 0) - len(data)
        return len(data)

    def _receive(self, view: memoryview) -> int:
        """Wait for a full buffer: that saves wake-ups, and calls for what is done with each buffer."""
        if not isinstance(self._sock, ssl.SSLSocket):
            return self._sock.recv_into(view, 0, socket.MSG_WAITALL)
        received, until = 0, time.monotonic() + FILL_SECONDS
        # OpenSSL has no such flag and gives a record of 16 KiB at most.
        while received < len(view) and (count := self._sock.recv_into(view[received:])):
            received += count
            if time.monotonic() > until:
                break
        return received

    def read_text(self, limit: int = 2000) -> str:
        """Give the start of an error's body."""
        return self._response.read(limit).decode(errors="replace")

    def finish(self) -> bool:
        """End the answer; true when its connection can carry another request."""
        reusable = self._left == 0 and not self._response.will_close
        self._response.close()
        return reusable


class Line:
    """A connection that is reopened when its host changes or it broke."""

    def __init__(self, reach: Reach) -> None:
        self.reach = reach
        self._peer = ""
        self._connection: http.client.HTTPConnection | None = None
        self._sock: socket.socket | None = None
        self._lock = threading.Lock()

    def request(self, link: Link, first: int, last: int, validator: str) -> Answer:
        """Ask for the bytes ``first`` to ``last``, if the file still has the validator.

        Raises:
            OSError: the host does not answer.
            http.client.HTTPException: it answers no HTTP.
            SpecInvalid: the host is not allowed.
        """
        target = urlsplit(link.url)
        connection = self._connect(target)
        headers = {"Range": f"bytes={first}-{last}", "Accept-Encoding": "identity", **link.headers}
        if validator:
            headers["If-Match"] = f'"{validator}"'
        path = f"{target.path}?{target.query}"
        if target.scheme == "http" and (proxy := _proxy_of(target)):
            path, headers = link.url, {**headers, **_proxy_headers(proxy)}
        assert self._sock is not None
        self._sock.settimeout(self.reach.stall_seconds)
        connection.request("GET", path, headers={"Host": target.netloc, **headers})
        return Answer(connection.getresponse(), self._sock)

    def _connect(self, target: SplitResult) -> http.client.HTTPConnection:
        peer = f"{target.scheme}://{target.netloc}"
        if self._connection is None or peer != self._peer:
            self.close()
            self._connection = self._open(target)
            self._peer = peer
        return self._connection

    def _open(self, target: SplitResult) -> http.client.HTTPConnection:
        host, secure = target.hostname or "", target.scheme == "https"
        port = target.port or (443 if secure else 80)
        proxy = _proxy_of(target)
        if proxy is None:
            sock = self._dial(self.reach.rule, host, port)
        else:
            # The proxy is the operator's own and looks the name up itself.
            sock = self._dial(
                HostRule({f"{proxy.hostname}:{proxy.port or 80}"}), proxy.hostname or "", proxy.port or 80
            )
            if secure:
                _tunnel(sock, f"{host}:{port}", proxy)
        if secure:
            sock = self._keep(self.reach.make_tls().wrap_socket(sock, server_hostname=host))
        connection = http.client.HTTPConnection(host, port)
        connection.auto_open = 0
        connection.sock = sock
        return connection

    def _dial(self, rule: HostRule, host: str, port: int) -> socket.socket:
        failure: OSError | None = None
        for family, kind, protocol, _, address in rule.resolve(host, port):
            sock = self._keep(socket.socket(family, kind, protocol))
            sock.settimeout(CONNECT_SECONDS)
            if self.reach.receive_bytes is not None:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, self.reach.receive_bytes)
            try:
                sock.connect(address)
            except OSError as error:
                sock.close()
                failure = error
                continue
            _bound_silence(sock, self.reach.stall_seconds)
            return sock
        raise failure or OSError(f"{host} has no address")

    def _keep(self, sock: socket.socket) -> socket.socket:
        with self._lock:
            self._sock = sock
        return sock

    def close(self) -> None:
        """Close the connection, if there is one."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None
        with self._lock:
            sock, self._sock = self._sock, None
        if sock is not None:
            sock.close()

    def abort(self) -> None:
        """Wake a thread that reads from this line; called from another one."""
        with self._lock:
            sock = self._sock
        if sock is not None:
            try:
                sock.shutdown(socket.SHUT_RDWR)
            except OSError:
                # Not connected, or closed meanwhile: nobody waits on it then.
                return


def _bound_silence(sock: socket.socket, seconds: float) -> None:
    """Bound each receive in the kernel: a socket with a Python timeout cannot wait for a whole buffer."""
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    limit = struct.pack("ll", int(seconds), int(seconds % 1 * 1_000_000))
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, limit)


def _proxy_of(target: SplitResult) -> SplitResult | None:
    if urllib.request.proxy_bypass(target.hostname or ""):
        return None
    proxy = urllib.request.getproxies().get(target.scheme)
    return urlsplit(proxy if "://" in proxy else f"http://{proxy}") if proxy else None


def _proxy_headers(proxy: SplitResult) -> dict[str, str]:
    if not proxy.username:
        return {}
    pair = f"{unquote(proxy.username)}:{unquote(proxy.password or '')}"
    return {"Proxy-Authorization": f"Basic {b64encode(pair.encode()).decode()}"}


def _tunnel(sock: socket.socket, peer: str, proxy: SplitResult) -> None:
    headers = {"Host": peer, **_proxy_headers(proxy)}
    lines = [f"CONNECT {peer} HTTP/1.1", *(f"{name}: {value}" for name, value in headers.items())]
    sock.sendall("\r\n".join([*lines, "", ""]).encode())
    head = b""
    while not head.endswith(b"\r\n\r\n"):
        byte = sock.recv(1)
        if not byte or len(head) > 1 << 14:
            raise ConnectionError("the proxy closed the connection")
        head += byte
    if head.split(b" ")[1:2] != [b"200"]:
        raise ConnectionError(f"the proxy refused a tunnel to {peer}: {head.splitlines()[0].decode(errors='replace')}")
