"""Credentials of the Kubernetes client: from the kubeconfig of the moment, read anew when they are refused."""

import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from aiohttp import web

from plnt.clients import kube
from plnt.clients.kube import WORKFLOW_RUNS
from plnt.errors import AccessDenied


class Gate:
    """An API server that knows one token."""

    def __init__(self) -> None:
        self.token = "first"
        self.forbidden = 0
        """Requests that are refused for want of a role, as by a server that has just started."""
        self.ready = True
        self.refused = 0
        self.url = ""

    async def handle(self, request: web.Request) -> web.Response:
        if request.headers.get("Authorization") != f"Bearer {self.token}":
            self.refused += 1
            return web.json_response({"message": "Unauthorized"}, status=401)
        if request.path == "/readyz" and self.ready:
            return web.Response(text="ok")
        if self.forbidden > 0:
            self.forbidden -= 1
            said = 'workflowruns.plnt.work is forbidden: User "plnt-bridge" cannot list resource "workflowruns"'
            return web.json_response({"message": said}, status=403)
        return web.json_response({"metadata": {"resourceVersion": "7"}, "items": []})


@pytest.fixture
async def gate() -> AsyncIterator[Gate]:
    gate, app = Gate(), web.Application()
    app.router.add_route("*", "/{tail:.*}", gate.handle)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    gate.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    yield gate
    await runner.cleanup()


@pytest.fixture
def kubeconfig(gate: Gate, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "kubeconfig"
    monkeypatch.setenv("KUBECONFIG", str(path))
    write(path, gate.url, "first")
    return path


def write(path: Path, url: str, token: str) -> None:
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "c", "cluster": {"server": url}}],
        "users": [{"name": "u", "user": {"token": token}}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "x",
    }
    path.write_text(json.dumps(config))


async def test_refused_token_is_read_anew_from_the_kubeconfig(gate: Gate, kubeconfig: Path) -> None:
    async with kube.connect() as api:
        await api.list(WORKFLOW_RUNS)
        gate.token = "second"
        write(kubeconfig, gate.url, "second")
        _, version = await api.list(WORKFLOW_RUNS)
    assert (version, gate.refused) == ("7", 1)


async def test_token_that_stays_refused_is_told_and_the_server_is_not_asked_without_end(
    gate: Gate, kubeconfig: Path
) -> None:
    gate.token = "unknown"
    async with kube.connect() as api:
        with pytest.raises(AccessDenied):
            await api.list(WORKFLOW_RUNS)
        assert gate.refused == 2
        with pytest.raises(AccessDenied):
            await api.list(WORKFLOW_RUNS)
        assert gate.refused == 3


async def test_server_that_has_just_started_and_knows_no_roles_yet_is_asked_again(gate: Gate, kubeconfig: Path) -> None:
    gate.forbidden = 2
    async with kube.connect() as api:
        _, version = await api.list(WORKFLOW_RUNS)
    assert version == "7"


async def test_missing_role_is_told_after_a_moment(
    gate: Gate, kubeconfig: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kube, "FORBIDDEN_SECONDS", 1.0)
    gate.forbidden = 99
    async with kube.connect() as api:
        with pytest.raises(AccessDenied, match="cannot list resource"):
            await api.list(WORKFLOW_RUNS)


async def test_missing_role_is_not_told_while_the_server_says_that_it_is_starting(
    gate: Gate, kubeconfig: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kube, "FORBIDDEN_SECONDS", 0.0)
    gate.ready, gate.forbidden = False, 6
    async with kube.connect() as api:
        _, version = await api.list(WORKFLOW_RUNS)
    assert (version, gate.forbidden) == ("7", 0)
