"""Small documents over HTTP: manifests, configurations, tokens. The host rule judges every host, on each redirect."""

import asyncio
import socket
import ssl
import urllib.request
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from urllib.parse import urlsplit

import aiohttp
from aiohttp.abc import AbstractResolver, ResolveResult

from plnt.clients.weights.host_rule import HostRule
from plnt.clients.weights.redirect import REDIRECTS, follow, port_of
from plnt.clients.weights.source import Link
from plnt.errors import SourceUnavailable, SpecInvalid

CONNECT_SECONDS, READ_SECONDS = 10.0, 30.0
MAX_HOPS = 5
_CHUNK = 1 << 16


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer, read whole."""

    status: int
    headers: Mapping[str, str]
    """Names in lower case."""
    body: bytes = field(repr=False)


class Web:
    """A client for one source."""

    def __init__(self, session: aiohttp.ClientSession, rule: HostRule) -> None:
        self._session = session
        self.rule = rule

    async def get(self, link: Link, *, limit: int, form: Mapping[str, str] | None = None, cuts: bool = False) -> Reply:
        """Get a document, or post ``form``; ``cuts`` keeps the first ``limit`` bytes of a longer one.

        Raises:
            SourceUnavailable: the host does not answer.
            SpecInvalid: the host is not allowed, or the document is longer than ``limit`` bytes.
        """
        for _ in range(MAX_HOPS):
            reply = await self._ask(link, limit, form, cuts=cuts)
            if reply.status not in REDIRECTS:
                return reply
            link = follow(link, reply.headers.get("location", ""), self.rule)
        raise SourceUnavailable(f"{urlsplit(link.url).hostname} redirects in circles")

    async def _ask(self, link: Link, limit: int, form: Mapping[str, str] | None, *, cuts: bool) -> Reply:
        parts = urlsplit(link.url)
        host, proxy = parts.hostname or "", _proxy_of(link.url)
        if proxy is None:
            # Addresses written as numbers never reach the connector's resolver.
            await self._judge(host, port_of(parts))
        try:
            async with self._session.request(
                "GET" if form is None else "POST",
                link.url,
                headers=link.headers,
                data=form,
                proxy=proxy,
                allow_redirects=False,
            ) as answer:
                headers = {key.lower(): value for key, value in answer.headers.items()}
                return Reply(answer.status, headers, await _read(answer, limit, host, cuts=cuts))
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise SourceUnavailable(f"{host} does not answer: {error or type(error).__name__}") from error

    async def _judge(self, host: str, port: int) -> None:
        try:
            await asyncio.to_thread(self.rule.resolve, host, port)
        except OSError as error:
            raise SourceUnavailable(f"{host} has no address: {error}") from error


async def _read(answer: aiohttp.ClientResponse, limit: int, host: str, *, cuts: bool) -> bytes:
    body = bytearray()
    async for chunk in answer.content.iter_chunked(_CHUNK):
        body += chunk
        if len(body) > limit:
            if cuts:
                break
            raise SpecInvalid(f"spec.model.storageUri: {host} answers with more than {limit} bytes where less is due")
    del body[limit:]
    return bytes(body)


@asynccontextmanager
async def open_web(rule: HostRule, ca_bundle: str | None = None) -> AsyncIterator[Web]:
    """Open a client that obeys ``rule`` and the environment's proxies."""
    tls = ssl.create_default_context(cafile=ca_bundle)
    connector = aiohttp.TCPConnector(resolver=_Resolver(rule), ssl=tls, limit=16)
    timeout = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_SECONDS, sock_read=READ_SECONDS)
    # Bodies as they are sent: sums are over stored bytes.
    async with aiohttp.ClientSession(
        connector=connector, timeout=timeout, auto_decompress=False, headers={"Accept-Encoding": "identity"}
    ) as session:
        yield Web(session, rule)


class _Resolver(AbstractResolver):
    """Looks names up under the rule; what it gives is what is connected to."""

    def __init__(self, rule: HostRule) -> None:
        self._rule = rule

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        proxies = [urlsplit(proxy) for proxy in urllib.request.getproxies().values()]
        rule = self._rule
        if any(proxy.hostname == host and port_of(proxy) == port for proxy in proxies):
            rule = HostRule({f"{host}:{port}"})
        found = await asyncio.to_thread(rule.resolve, host, port)
        return [
            ResolveResult(
                hostname=host,
                host=str(info[4][0]),
                port=port,
                family=info[0],
                proto=info[2],
                flags=socket.AI_NUMERICHOST | socket.AI_NUMERICSERV,
            )
            for info in found
            if family in {socket.AF_UNSPEC, info[0]}
        ]

    async def close(self) -> None:
        """Nothing to close."""


def _proxy_of(url: str) -> str | None:
    parts = urlsplit(url)
    if urllib.request.proxy_bypass(parts.hostname or ""):
        return None
    proxy = urllib.request.getproxies().get(parts.scheme)
    return (proxy if "://" in proxy else f"http://{proxy}") if proxy else None
