"""An API server that serves WorkflowRuns over HTTP, with faults that a test sets; other kinds are only accepted."""

import asyncio
import copy
import json
import re
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import web
from kubernetes_asyncio import client

from plnt.clients.kube import Kube
from plnt.model import names

Object = dict[str, Any]
Fault = Callable[[web.StreamResponse], Awaitable[None]]

SPEC: Object = {
    "runtime": "vllm",
    "model": {"name": "org/small", "storageUri": "s3://models/small"},
    "resources": {"gpu": 1, "gpuClass": "nvidia.com/h100", "memoryGiB": 8},
}


class KubeApi:
    """Keeps objects and a log of events as etcd does: one version for all."""

    def __init__(self) -> None:
        self.objects: dict[tuple[str, str], Object] = {}
        self.version = 100
        self.oldest = 0
        """Watches from a version under this get 410."""
        self.refusal = 0
        """Status with which every request is answered, if set."""
        self.watch_faults: deque[Fault] = deque()
        """Each spoils one watch, right after it was opened."""
        self.lists = 0
        self.watches = 0
        self.statuses: list[Object] = []
        """Every status that was written, in order."""
        self.events: list[Object] = []
        """Every events.k8s.io Event that was created."""
        self.before_status_write: Callable[[], None] = lambda: None
        """Runs between a status writer's read and its write."""
        self._log: list[tuple[int, str, Object]] = []
        self._changed = asyncio.Condition()

    def put(
        self, name: str, *, namespace: str = "default", uid: str = "uid-1", generation: int = 1, **meta: Any
    ) -> Object:
        """Create or change an object, as a user would; the status stays unless the uid is new."""
        known = self.objects.get((namespace, name))
        same = known is not None and known["metadata"]["uid"] == uid
        manifest: Object = {
            "apiVersion": names.API_VERSION,
            "kind": names.KIND,
            "metadata": {"namespace": namespace, "name": name, "uid": uid, "generation": generation, **meta},
            "spec": copy.deepcopy(SPEC),
        }
        if known is not None and same and "status" in known:
            manifest["status"] = known["status"]
        return self._store("MODIFIED" if same else "ADDED", manifest)

    def set_status(self, name: str, status: Object, *, namespace: str = "default") -> None:
        """Put a whole status, as some earlier bridge did."""
        self._store("MODIFIED", {**self.objects[(namespace, name)], "status": status})

    def remove(self, name: str, *, namespace: str = "default", silently: bool = False) -> None:
        """Delete an object; ``silently``: no watch ever tells."""
        manifest = self.objects.pop((namespace, name))
        self.version += 1
        if not silently:
            self._tell("DELETED", manifest)

    def replay(self, manifest: Object) -> None:
        """Send an old state of an object again."""
        self._tell("MODIFIED", manifest)

    def _store(self, kind: str, manifest: Object) -> Object:
        self.version += 1
        manifest = copy.deepcopy(manifest)
        manifest["metadata"]["resourceVersion"] = str(self.version)
        meta = manifest["metadata"]
        self.objects[(meta["namespace"], meta["name"])] = manifest
        self._tell(kind, manifest)
        return manifest

    def _tell(self, kind: str, manifest: Object) -> None:
        self._log.append((self.version, kind, copy.deepcopy(manifest)))
        asyncio.get_running_loop().create_task(self._wake())

    async def _wake(self) -> None:
        async with self._changed:
            self._changed.notify_all()

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """Answer any request."""
        if self.refusal:
            return _status(self.refusal, "refused by the test")
        if "/events" in request.path:
            self.events.append(await request.json())
            return web.json_response(self.events[-1])
        found = re.fullmatch(
            rf"/apis/plnt\.work/v1(?:/namespaces/(?P<ns>[^/]+))?/{names.PLURAL}(?:/(?P<name>[^/]+))?(?P<sub>/status)?",
            request.path,
        )
        if found is None:
            return _status(404, "no such path")
        namespace, name = found["ns"], found["name"]
        if name is None:
            return await (self._watch if "watch" in request.query else self._list)(request, namespace)
        return await self._one(request, (namespace, name))

    async def _one(self, request: web.Request, key: tuple[str, str]) -> web.Response:
        live = self.objects.get(key)
        if live is None:
            return _status(404, "not found")
        if request.method == "GET":
            return web.json_response(live)
        body = await request.json()
        self.before_status_write()
        live = self.objects[key]
        wanted = body["metadata"].get("resourceVersion")
        if wanted is not None and wanted != live["metadata"]["resourceVersion"]:
            return _status(409, "the object has been modified")
        if request.path.endswith("/status"):
            self.statuses.append(body["status"])
            return web.json_response(self._store("MODIFIED", {**live, "status": body["status"]}))
        changed = copy.deepcopy(live)
        changed["metadata"]["finalizers"] = body["metadata"]["finalizers"]
        return web.json_response(self._store("MODIFIED", changed))

    async def _list(self, _: web.Request, namespace: str | None) -> web.Response:
        self.lists += 1
        items = [one for (ns, _name), one in sorted(self.objects.items()) if namespace in (None, ns)]
        return web.json_response({"metadata": {"resourceVersion": str(self.version)}, "items": items})

    async def _watch(self, request: web.Request, namespace: str | None) -> web.StreamResponse:
        self.watches += 1
        response = web.StreamResponse()
        await response.prepare(request)
        since = int(request.query["resourceVersion"])
        if since < self.oldest:
            await send(response, "ERROR", {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old"})
            return response
        if self.watch_faults:
            await self.watch_faults.popleft()(response)
            return response
        place = next((i for i, (version, _, _) in enumerate(self._log) if version > since), len(self._log))
        while True:
            for _version, kind, manifest in self._log[place:]:
                if namespace in (None, manifest["metadata"]["namespace"]):
                    await send(response, kind, manifest)
            place = len(self._log)
            async with self._changed:
                await self._changed.wait_for(lambda: len(self._log) > place)  # noqa: B023


async def send(response: web.StreamResponse, kind: str, manifest: Object) -> None:
    """Send one watch event."""
    await response.write(json.dumps({"type": kind, "object": manifest}).encode() + b"\n")


def _status(code: int, message: str) -> web.Response:
    return web.json_response({"kind": "Status", "code": code, "message": message}, status=code)


@asynccontextmanager
async def serve_kube_api() -> AsyncIterator[tuple[KubeApi, Kube]]:
    """Serve one on a free port and give a client that is connected to it."""
    api, app = KubeApi(), web.Application()
    app.router.add_route("*", "/{tail:.*}", api.handle)
    runner = web.AppRunner(app, access_log=None, handler_cancellation=True, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    configuration = client.Configuration()
    configuration.host = f"http://127.0.0.1:{runner.addresses[0][1]}"
    try:
        async with client.ApiClient(configuration) as connection:
            yield api, Kube(connection)
    finally:
        await runner.cleanup()
