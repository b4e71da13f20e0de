"""Speaks the registry protocol: finds the base URL, gets tokens, reads manifests and blobs."""

import hashlib
import re
import time
from base64 import b64encode
from collections.abc import Mapping
from urllib.parse import urlencode, urlsplit

from plnt.clients.weights.credentials import Login
from plnt.clients.weights.redirect import port_of
from plnt.clients.weights.source import Link
from plnt.clients.weights.web import Reply, Web
from plnt.errors import AccessDenied, DigestMismatch, PlntError, SourceUnavailable, SpecInvalid, WeightsNotFound
from plnt.model.oci_manifest import ACCEPT, MAX_MANIFEST_BYTES
from plnt.model.storage_uri import FIELD, OciUri
from plnt.model.weight_files import parse_json_object

MAX_TOKEN_BYTES = 1 << 20
TOKEN_SECONDS = 60
"""Life of a token whose issuer does not say, as the token protocol has it."""
REUSE_SECONDS = 10.0
"""Age up to which the links of one pull share a token."""
_FRESH = 0.8
"""Part of a token's life after which another is asked for."""
_HUB = frozenset({"docker.io", "index.docker.io"})
_PARAMETER = re.compile(r'(\w+)="([^"]*)"')


class Registry:
    """One repository of one registry."""

    def __init__(self, web: Web, uri: OciUri, login: Login | None, mirror: str = "") -> None:
        self._web, self._uri, self._login, self._base = web, uri, login, mirror.rstrip("/")
        is_hub = uri.host in _HUB
        self._host = "registry-1.docker.io" if is_hub else uri.host
        self._name = f"library/{uri.name}" if is_hub and "/" not in uri.name else uri.name
        self._authorization = ""
        self._authorized_at = self._fresh_until = 0.0

    async def read_manifest(self, reference: str, where: str) -> tuple[bytes, str]:
        """Give a manifest by tag or digest, and its digest, which was computed here.

        Raises:
            DigestMismatch: it is not what the digest says.
        """
        reply = await self._get(f"manifests/{reference}", where, {"Accept": ACCEPT}, MAX_MANIFEST_BYTES)
        digest = f"sha256:{hashlib.sha256(reply.body).hexdigest()}"
        claimed = reply.headers.get("docker-content-digest", digest)
        wanted = reference if ":" in reference else claimed
        if digest != wanted:
            raise DigestMismatch(f"{where}: the registry gives a manifest of {digest} where {wanted} is due")
        return reply.body, digest

    async def read_blob(self, digest: str, limit: int, where: str, *, cuts: bool = False) -> bytes:
        """Give a small blob, checked; or, unchecked, the first ``limit`` bytes of a large one.

        Raises:
            DigestMismatch: it is not what the digest says.
        """
        headers = {"Range": f"bytes=0-{limit - 1}"} if cuts else {}
        reply = await self._get(f"blobs/{digest}", where, headers, limit, cuts=cuts)
        found = f"sha256:{hashlib.sha256(reply.body).hexdigest()}"
        if found != digest and not cuts:
            raise DigestMismatch(f"{where}: the registry gives a blob of {found} where {digest} is due")
        return reply.body

    async def make_link(self, digest: str) -> Link:
        """Give a link to a blob, with a token of the last seconds: an older one may be why a link is asked for anew."""
        if time.monotonic() - self._authorized_at > REUSE_SECONDS:
            self._fresh_until = 0.0
        await self._authorize()
        return self._link(f"blobs/{digest}", {})

    def _link(self, path: str, headers: Mapping[str, str]) -> Link:
        own = {"Authorization": self._authorization} if self._authorization else {}
        return Link(f"{self._base}/v2/{self._name}/{path}", {**headers, **own}, follows=True)

    async def _get(self, path: str, where: str, headers: Mapping[str, str], limit: int, *, cuts: bool = False) -> Reply:
        await self._authorize()
        reply = await self._web.get(self._link(path, headers), limit=limit, cuts=cuts)
        if reply.status in {200, 206}:
            return reply
        raise _explain_status(reply.status, where)

    async def _authorize(self) -> None:
        """Ask the registry how it wants to be asked, and get what it wants."""
        if self._fresh_until > time.monotonic():
            return
        reply = await self._ping()
        challenge = reply.headers.get("www-authenticate", "") if reply.status == 401 else ""
        kind, _, rest = challenge.partition(" ")
        seconds = float(TOKEN_SECONDS)
        if kind.lower() == "bearer":
            token, seconds = await self._fetch_token(dict(_PARAMETER.findall(rest)))
            self._authorization = f"Bearer {token}"
        elif kind.lower() == "basic" and self._login is not None:
            self._authorization = _basic(self._login)
        self._authorized_at = time.monotonic()
        self._fresh_until = self._authorized_at + seconds * _FRESH

    async def _ping(self) -> Reply:
        """Ask for the protocol's version; a host that the operator named may speak plain HTTP."""
        if self._base:
            return await self._web.get(Link(f"{self._base}/v2/"), limit=MAX_TOKEN_BYTES)
        parts = urlsplit(f"https://{self._host}")
        plain = self._web.rule.is_trusted(parts.hostname or "", parts.port or 80)
        try:
            reply = await self._web.get(Link(f"https://{self._host}/v2/"), limit=MAX_TOKEN_BYTES)
        except SourceUnavailable:
            if not plain:
                raise
            reply = await self._web.get(Link(f"http://{self._host}/v2/"), limit=MAX_TOKEN_BYTES)
            self._base = f"http://{self._host}"
        else:
            self._base = f"https://{self._host}"
        return reply

    async def _fetch_token(self, asked: Mapping[str, str]) -> tuple[str, float]:
        realm, login = asked.get("realm", ""), self._login
        parts = urlsplit(realm)
        if parts.scheme != "https" and not (
            parts.scheme == "http" and self._web.rule.is_trusted(parts.hostname or "", port_of(parts))
        ):
            raise SpecInvalid(f"{FIELD}: registry {self._uri.host} sends for tokens to an address without TLS")
        query = {"service": asked.get("service", ""), "scope": f"repository:{self._name}:pull"}
        if login is not None and login.identity_token:
            form = {**query, "grant_type": "refresh_token", "refresh_token": login.identity_token, "client_id": "plnt"}
            reply = await self._web.get(Link(realm), limit=MAX_TOKEN_BYTES, form=form)
        else:
            headers = {"Authorization": _basic(login)} if login is not None else {}
            mark = "&" if parts.query else "?"
            reply = await self._web.get(Link(f"{realm}{mark}{urlencode(query)}", headers), limit=MAX_TOKEN_BYTES)
        if reply.status != 200:
            raise _explain_status(reply.status, f"oci://{self._uri.host}/{self._uri.name}")
        answer = parse_json_object(reply.body, "the answer to a request for a token", self._uri.host)
        token = str(answer.get("token") or answer.get("access_token") or "")
        seconds = answer.get("expires_in")
        return token, float(seconds) if isinstance(seconds, int | float) and seconds > 0 else float(TOKEN_SECONDS)


def _basic(login: Login) -> str:
    return f"Basic {b64encode(f'{login.user}:{login.password}'.encode()).decode()}"


def _explain_status(status: int, where: str) -> PlntError:
    if status in {401, 403}:
        return AccessDenied(
            f"{FIELD}: no access to {where} (HTTP {status}): name a Secret of type kubernetes.io/dockerconfigjson in "
            f"annotation plnt.work/credentials"
        )
    if status == 404:
        return WeightsNotFound(f"{FIELD}: {where} is not at the registry: correct name, tag or digest, or push it")
    return SourceUnavailable(f"{where}: the registry answered HTTP {status}")
