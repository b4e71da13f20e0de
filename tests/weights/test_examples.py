"""The examples' locations, served and seeded by the sandbox's own components, through the pool's activities."""

import base64
import json
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from aiohttp import web
from temporalio.testing import ActivityEnvironment

from activities.weights import open_pool
from plnt.errors import AccessDenied, SpecInvalid
from plnt.model.desired import Ref
from plnt.model.messages import PullWeights, ResolveSource
from plnt.model.workflow_run import Quantization, Runtime
from plnt.sandbox.component import Site
from plnt.sandbox.model_files import ModelFolder, write_model
from plnt.sandbox.ports import claim_block
from plnt.sandbox.programs import Programs
from plnt.sandbox.sources.components import hub_root, list_settings, list_sources, write_source_files
from plnt.sandbox.sources.examples import seed_sources
from plnt.sandbox.sources.hub import TOKEN, write_repository
from plnt.sandbox.sources.servers import SourceServers
from plnt.sandbox.state import State
from plnt.sandbox.supervisor import Supervisor
from plnt.settings import PoolSettings
from tests.fakes.source_servers import find_folder, serving

FOLDER = Path(__file__).resolve().parents[2] / "examples"
URIS = {
    path.stem: yaml.safe_load(path.read_text())["spec"]["model"]["storageUri"]
    for path in sorted(FOLDER.glob("weights-*.yaml"))
}
REF = Ref(namespace="team", name="llama")


@pytest.fixture(scope="module")
async def site(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Site]:
    state = State(tmp_path_factory.mktemp("sources"))
    claim = claim_block(state)
    nowhere = Path("/nowhere")
    programs = Programs(nowhere, nowhere, nowhere, nowhere, nowhere, nowhere, sources=SourceServers(find_folder()))
    site = Site(state, claim.block, programs)
    state.clear()
    write_source_files(site)
    supervisor = Supervisor(state, list_sources(site))
    try:
        supervisor.start()
        await seed_sources(site, supervisor)
        yield site
    finally:
        await supervisor.stop_all()
        claim.release()


Pool = list[Callable[..., Any]]


@pytest.fixture
async def pool(site: Site, tmp_path: Path) -> AsyncIterator[Pool]:
    settings = PoolSettings.read({"PLNT_CACHE_DIR": str(tmp_path / "cache"), **list_settings(site)})
    async with open_pool(settings) as activities:
        yield list(activities)


def ask(uri: str, secret: str = "") -> ResolveSource:
    return ResolveSource(
        ref=REF, runtime=Runtime.VLLM, storage_uri=uri, quantization=Quantization.FP16, credentials=secret
    )


@pytest.mark.parametrize("uri", URIS.values(), ids=URIS)
async def test_weights_of_an_example_are_pulled(pool: Pool, uri: str, tmp_path: Path) -> None:
    plan = await ActivityEnvironment().run(pool[0], ask(uri))
    tree = await ActivityEnvironment().run(pool[1], PullWeights(ref=REF, storage_uri=uri, plan=plan))
    names = {path.name for path in (tmp_path / "cache" / "trees" / tree.digest).iterdir()}
    assert {"config.json", "tokenizer.json", "model-00002-of-00002.safetensors", "stub.json"} < names
    assert plan.shape.heads == 4


@dataclass
class SecretApi:
    """An API server that holds one Secret and lets plnt read it or not."""

    allowed: bool = False
    exists: bool = True

    async def handle(self, request: web.Request) -> web.Response:
        if request.path.endswith("/selfsubjectreviews"):
            user = {"username": "system:serviceaccount:plnt-system:plnt-weights"}
            return web.json_response({"status": {"userInfo": user}}, status=201)
        assert request.path == "/api/v1/namespaces/team/secrets/hub"
        if not self.allowed:
            return web.json_response({"message": "forbidden"}, status=403)
        if not self.exists:
            return web.json_response({"message": "not found"}, status=404)
        return web.json_response({"data": {"HF_TOKEN": base64.b64encode(TOKEN.encode()).decode()}})


@pytest.fixture
async def secrets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[SecretApi]:
    api, app = SecretApi(), web.Application()
    app.router.add_route("*", "/{tail:.*}", api.handle)
    async with serving(app) as port:
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "c", "cluster": {"server": f"http://127.0.0.1:{port}"}}],
            "users": [{"name": "u", "user": {"token": "t"}}],
            "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
            "current-context": "x",
        }
        path = tmp_path / "kubeconfig"
        path.write_text(json.dumps(config))
        monkeypatch.setenv("KUBECONFIG", str(path))
        yield api


def find_text(folder: Path, text: str) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file() and text.encode() in path.read_bytes()]


async def test_secret_is_read_at_use_and_the_missing_grant_is_spelled_out(
    pool: Pool, site: Site, secrets: SecretApi, tmp_path: Path
) -> None:
    write_model(tmp_path / "model", ModelFolder(2 << 20, 1, seed=7))
    write_repository(hub_root(site), "org/private", tmp_path / "model", private=True)
    with pytest.raises(AccessDenied) as error:
        await ActivityEnvironment().run(pool[0], ask("hf://org/private", "hub"))
    assert "kubectl create role plnt-hub --namespace=team --verb=get --resource=secrets --resource-name=hub" in str(
        error.value
    )
    assert "--user=system:serviceaccount:plnt-system:plnt-weights" in str(error.value)
    secrets.allowed = True
    plan = await ActivityEnvironment().run(pool[0], ask("hf://org/private", "hub"))
    request = PullWeights(ref=REF, storage_uri="hf://org/private", plan=plan, credentials="hub")
    tree = await ActivityEnvironment().run(pool[1], request)
    assert TOKEN not in plan.model_dump_json() + tree.model_dump_json()
    assert not find_text(tmp_path, TOKEN)


async def test_secret_that_is_not_there_is_named(pool: Pool, secrets: SecretApi) -> None:
    secrets.allowed, secrets.exists = True, False
    with pytest.raises(SpecInvalid, match="no Secret hub in namespace team"):
        await ActivityEnvironment().run(pool[0], ask("hf://org/private", "hub"))
