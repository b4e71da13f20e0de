"""A thin Kubernetes client on kubernetes-asyncio: dicts in and out, every fault a plnt error.

Request timeouts are set on each call: kubernetes-asyncio has none of its own.
"""

import asyncio
import json
import os
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import aiohttp
import yaml
from kubernetes_asyncio import client, config

from plnt.errors import AccessDenied, ApiUnavailable, Conflict, Expired, NotFound, PlntError, Rejected
from plnt.model import names
from plnt.settings import SettingsInvalid

Object = dict[str, Any]
Page = tuple[list[Object], str]
"""Objects of one page of a list, and the list's resourceVersion."""

CONNECT_SECONDS = 10.0
REQUEST_SECONDS = 30.0
PAGE = 500
"""Objects a page of a list; client-go's default."""
RELOAD_SECONDS = 5.0
"""Least time between two loads of credentials: a server that refuses fresh ones is not asked without a pause."""

FORBIDDEN_SECONDS, FORBIDDEN_PAUSE_SECONDS = 5.0, 0.5
"""How long a request without a role is repeated: an API server that starts refuses everybody for a moment."""
STARTING_SECONDS = 120.0
"""How long it is repeated while the server says that it is not ready: on a busy machine its start takes a minute."""

Opener = Callable[[], Awaitable[client.ApiClient]]


@dataclass(frozen=True, slots=True)
class Resource:
    """A kind of object: ``api`` is ``v1`` or ``group/version``."""

    api: str
    plural: str

    def path(self, namespace: str | None = None, name: str | None = None, sub: str | None = None) -> str:
        """Give the URL path of the collection, the object or its subresource."""
        parts = ["/api" if self.api == "v1" else "/apis", self.api]
        if namespace is not None:
            parts += ["namespaces", namespace]
        parts += [self.plural, *(part for part in (name, sub) if part is not None)]
        return "/".join(parts)


WORKFLOW_RUNS = Resource(names.API_VERSION, names.PLURAL)
PODS = Resource("v1", "pods")
NODES = Resource("v1", "nodes")
SERVICES = Resource("v1", "services")
CONFIG_MAPS = Resource("v1", "configmaps")
CLAIMS = Resource("v1", "persistentvolumeclaims")
EVENTS = Resource("events.k8s.io/v1", "events")
DEPLOYMENTS = Resource("apps/v1", "deployments")
REPLICA_SETS = Resource("apps/v1", "replicasets")
ENDPOINT_SLICES = Resource("discovery.k8s.io/v1", "endpointslices")
VIRTUAL_SERVICES = Resource("networking.istio.io/v1", "virtualservices")


class Kube:
    """Requests to one API server."""

    def __init__(self, api: client.ApiClient, reopen: Opener | None = None) -> None:
        """Use ``api``, which stays its opener's to close; ``reopen`` gives one with credentials read anew."""
        self._api = api
        self._reopen = reopen
        self._retired: list[client.ApiClient] = []
        self._reloaded = -RELOAD_SECONDS
        self._reloading = asyncio.Lock()

    async def close(self) -> None:
        """Close what was opened after a refusal."""
        for api in (*self._retired, self._api):
            await api.close()

    async def get(self, resource: Resource, namespace: str | None, name: str, sub: str | None = None) -> Object:
        """Read an object.

        Raises:
            NotFound: it is not there.
        """
        return await self._call("GET", resource.path(namespace, name, sub))

    async def find(self, resource: Resource, namespace: str | None, name: str) -> Object | None:
        """Read an object; none when it, or its kind, is not there."""
        try:
            return await self.get(resource, namespace, name)
        except NotFound:
            return None

    async def serves(self, api: str) -> bool:
        """Tell whether ``group/version`` is served, and answers: an aggregated one may be registered and down."""
        try:
            await self.discover(api)
        except (NotFound, ApiUnavailable):
            return False
        return True

    async def discover(self, api: str) -> Object:
        """Read what ``group/version`` offers.

        Raises:
            NotFound: it is not served.
            ApiUnavailable: it is aggregated, and its server does not answer.
        """
        return await self._call("GET", f"/apis/{api}")

    async def list(
        self, resource: Resource, namespace: str | None = None, *, labels: str = "", fields: str = ""
    ) -> tuple[list[Object], str]:
        """List all objects, page by page; gives them and the list's resourceVersion."""
        items: list[Object] = []
        page: Page = ([], "")
        async for page in self.pages(resource, namespace, labels=labels, fields=fields):
            items += page[0]
        return items, page[1]

    async def pages(
        self, resource: Resource, namespace: str | None = None, *, labels: str = "", fields: str = ""
    ) -> AsyncIterator[Page]:
        """List all objects; gives each page and the list's resourceVersion, for readers that keep little of a page."""
        token = ""
        while True:
            query = {"limit": str(PAGE), "continue": token, "labelSelector": labels, "fieldSelector": fields}
            page = await self._call("GET", resource.path(namespace), query=query)
            yield page.get("items") or [], page["metadata"]["resourceVersion"]
            token = page["metadata"].get("continue", "")
            if not token:
                return

    async def create(self, resource: Resource, namespace: str | None, body: Object) -> Object:
        """Create an object.

        Raises:
            Conflict: one of that name exists.
        """
        return await self._call(
            "POST", resource.path(namespace), body=body, query={"fieldManager": names.FIELD_MANAGER}
        )

    async def apply(
        self, resource: Resource, body: Object, *, manager: str = names.FIELD_MANAGER, sub: str | None = None
    ) -> Object:
        """Apply an object's whole own field set server-side, by force; a resourceVersion in it is a precondition."""
        meta = body["metadata"]
        return await self._call(
            "PATCH",
            resource.path(meta.get("namespace"), meta["name"], sub),
            body=body,
            content_type="application/apply-patch+yaml",
            query={"fieldManager": manager, "force": "true"},
        )

    async def merge(
        self, resource: Resource, namespace: str | None, name: str, body: Object, sub: str | None = None
    ) -> Object:
        """Merge-patch an object; put ``metadata.resourceVersion`` in ``body`` as precondition."""
        path = resource.path(namespace, name, sub)
        query = {"fieldManager": names.FIELD_MANAGER}
        return await self._call("PATCH", path, body=body, content_type="application/merge-patch+json", query=query)

    async def delete(
        self, resource: Resource, namespace: str | None, name: str, *, uid: str | None = None, grace: int | None = None
    ) -> None:
        """Delete an object if it is there; ``uid`` is a precondition."""
        options: Object = {} if uid is None else {"preconditions": {"uid": uid}}
        if grace is not None:
            options["gracePeriodSeconds"] = grace
        await self._delete(resource, namespace, name, options)

    async def delete_seen(self, resource: Resource, seen: Object) -> None:
        """Delete an object if it is there and nobody has changed it since it was read.

        Raises:
            Conflict: somebody has: read it again.
        """
        meta = seen["metadata"]
        preconditions = {"uid": meta["uid"], "resourceVersion": meta["resourceVersion"]}
        await self._delete(resource, meta.get("namespace"), meta["name"], {"preconditions": preconditions})

    async def _delete(self, resource: Resource, namespace: str | None, name: str, options: Object) -> None:
        body: Object = {"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": "Background", **options}
        with suppress(NotFound):
            await self._call("DELETE", resource.path(namespace, name), body=body)

    @asynccontextmanager
    async def stream(
        self, path: str, query: Mapping[str, str], idle_seconds: float
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """Open a streaming GET; ``idle_seconds`` without a byte raise ApiUnavailable at the reader's side."""
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_SECONDS, sock_read=idle_seconds)
        with _translated(f"GET {path}"):
            response = await self._request("GET", path, query=query, limits=timeout)
            try:
                yield response
            finally:
                response.close()

    async def _call(
        self,
        method: str,
        path: str,
        *,
        body: Object | None = None,
        query: Mapping[str, str] | None = None,
        content_type: str = "application/json",
    ) -> Object:
        timeout = aiohttp.ClientTimeout(total=REQUEST_SECONDS, sock_connect=CONNECT_SECONDS)
        with _translated(f"{method} {path}"):
            response = await self._request(
                method, path, body=body, query=query, content_type=content_type, limits=timeout
            )
            data = json.loads(await response.read())
        if not isinstance(data, dict):
            raise ApiUnavailable(f"{method} {path}: the answer is no JSON object")
        return data

    async def _request(
        self,
        method: str,
        path: str,
        *,
        limits: aiohttp.ClientTimeout,
        body: Object | None = None,
        query: Mapping[str, str] | None = None,
        content_type: str = "application/json",
    ) -> aiohttp.ClientResponse:
        """Send a request, again where a server that has just started refuses it before it has read any role."""
        began = time.monotonic()
        while True:
            response = await self._send(method, path, limits, body, query, content_type)
            if response.status < 400:
                return response
            text = await response.text()
            response.release()
            if (
                response.status != 403
                or not _lacks_role(text)
                or await self._is_meant(time.monotonic() - began, limits)
            ):
                raise _refusal(response.status, f"{method} {path}", text, response.headers.get("Retry-After"))
            await asyncio.sleep(FORBIDDEN_PAUSE_SECONDS)

    async def _is_meant(self, seconds: float, limits: aiohttp.ClientTimeout) -> bool:
        """Tell whether a refusal that has lasted for ``seconds`` is the server's last word.

        A server that has not read its roles yet refuses to say so, too.
        """
        if seconds <= FORBIDDEN_SECONDS:
            return False
        response = await self._send("GET", "/readyz", limits, None, None, "application/json")
        response.release()
        return response.status < 400 or seconds > STARTING_SECONDS

    async def _send(
        self,
        method: str,
        path: str,
        limits: aiohttp.ClientTimeout,
        body: Object | None,
        query: Mapping[str, str] | None,
        content_type: str,
    ) -> aiohttp.ClientResponse:
        configuration = self._api.configuration
        headers = {"Accept": "application/json", "User-Agent": "plnt"}
        authorization = await configuration.get_api_key_with_prefix("BearerToken")
        if authorization:
            headers["Authorization"] = authorization.strip()
        if body is not None:
            headers["Content-Type"] = content_type
        api = self._api
        response: aiohttp.ClientResponse = await api.rest_client.pool_manager.request(
            method,
            f"{configuration.host}{path}",
            params={key: value for key, value in (query or {}).items() if value},
            data=None if body is None else json.dumps(body),
            headers=headers,
            timeout=limits,
        )
        if response.status == 401 and await self._reload(api):
            response.release()
            return await self._send(method, path, limits, body, query, content_type)
        return response

    async def _reload(self, refused: client.ApiClient) -> bool:
        """Read the credentials anew after a 401; whether the request is worth another try.

        The client before the last is closed only then: a stream may still be read from the last one.
        """
        if self._reopen is None:
            return False
        async with self._reloading:
            if self._api is not refused:
                return True
            if time.monotonic() - self._reloaded < RELOAD_SECONDS:
                return False
            self._reloaded = time.monotonic()
            try:
                self._api = await self._reopen()
            except SettingsInvalid:
                return False
            self._retired.append(refused)
            while len(self._retired) > 1:
                await self._retired.pop(0).close()
            return True


@contextmanager
def _translated(doing: str) -> Iterator[None]:
    """Turn transport faults into ApiUnavailable, with what was being done."""
    try:
        yield
    except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as error:
        raise ApiUnavailable(f"{doing}: {type(error).__name__} {error}") from error


def _lacks_role(text: str) -> bool:
    """Tell a refusal for want of a role from one by a quota or an admission webhook."""
    return " is forbidden: User " in text and " cannot " in text


def _refusal(status: int, doing: str, text: str, retry_after: str | None) -> PlntError:
    try:
        message = json.loads(text).get("message", text)
    except (ValueError, AttributeError):
        message = text[:300]
    said = f"{doing}: {status} {message}"
    match status:
        case 404:
            return NotFound(said)
        case 409:
            return Conflict(said)
        case 410:
            return Expired(said)
        case 400 | 422:
            return Rejected(said)
        case 401 | 403:
            return AccessDenied(said)
        case _:
            after = timedelta(seconds=int(retry_after)) if retry_after and retry_after.isdecimal() else None
            return ApiUnavailable(said, after=after)


@asynccontextmanager
async def connect() -> AsyncIterator[Kube]:
    """Connect by ``KUBECONFIG`` or the default kubeconfig when there is one, else by the pod's service account.

    Credentials that the API server refuses are read anew: tokens and certificates are rotated.

    Raises:
        SettingsInvalid: there is no kubeconfig that can be read, and this is no pod with a service account.
    """
    kube = Kube(await _open_client(), _open_client)
    try:
        yield kube
    finally:
        await kube.close()


async def _open_client() -> client.ApiClient:
    """Open a client; the library reads ``KUBECONFIG`` at its import, so it is told the files of this moment.

    Raises:
        SettingsInvalid: they cannot be read.
    """
    configuration = client.Configuration()
    default = os.path.expanduser("~/.kube/config")  # noqa: PTH111, ASYNC240
    files = os.environ.get("KUBECONFIG") or (default if os.path.exists(default) else "")  # noqa: PTH110, ASYNC240
    try:
        if files:
            await config.load_kube_config(config_file=files, client_configuration=configuration)
        else:
            config.load_incluster_config(client_configuration=configuration)  # type: ignore[no-untyped-call]
    except (config.ConfigException, yaml.YAMLError, OSError, TypeError, ValueError) as error:
        said = " ".join(str(error).split())
        raise SettingsInvalid(f"KUBECONFIG: {files or 'not set'}: no way to the API server: {said}") from error
    return client.ApiClient(configuration)
