"""Weights from every scheme to Ready, on the examples' own locations and with a private source."""

import dataclasses
import json
import os
import re
import shlex
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest
import yaml

from plnt.model.options import CREDENTIALS, INCLUDE
from plnt.model.status import Phase
from plnt.sandbox.cluster import open_kube
from plnt.sandbox.model_files import ModelFolder, write_model
from plnt.sandbox.programs import Programs
from plnt.sandbox.running import Sandbox, running_sandbox
from plnt.sandbox.sources.components import hub_root, source_url
from plnt.sandbox.sources.hub import TOKEN, write_repository
from plnt.sandbox.sources.seed import MANIFEST
from plnt.sandbox.sources.servers import find_source_servers
from tests.e2e.models import FAST
from tests.e2e.place import Place, clear_place, make_place
from tests.e2e.scenario import FULL_PASS, Scenario

pytestmark = pytest.mark.extended

FOLDER = Path(__file__).resolve().parents[2] / "examples"
URIS = {
    path.stem: yaml.safe_load(path.read_text())["spec"]["model"]["storageUri"]
    for path in sorted(FOLDER.glob("weights-*.yaml"))
}
PROOF = {"gs": "crc32c", "hf": "sha256 and git-sha1", "oci": "sha256"}


@pytest.fixture(scope="module")
async def sourced(tmp_path_factory: pytest.TempPathFactory, programs: Programs) -> AsyncIterator[Sandbox]:
    """A sandbox with a server of every source."""
    servers = find_source_servers(os.environ)
    if servers is None:
        pytest.fail("the servers of the sources are not built: run `plnt build --sources` first (5 minutes, once)")
    with_sources = dataclasses.replace(programs, sources=servers)
    async with running_sandbox(tmp_path_factory.mktemp("sources"), with_sources) as running:
        yield running


@pytest.fixture
async def place(request: pytest.FixtureRequest, sourced: Sandbox) -> AsyncIterator[Place]:
    """A place of the test's own in the sandbox with sources."""
    async with open_kube(sourced.kubeconfig) as kube:
        made = await make_place(sourced, kube, request.node.name)
        yield made
        await clear_place(made)


@pytest.mark.parametrize("uri", URIS.values(), ids=URIS)
async def test_example_of_a_source_goes_to_ready(place: Place, uri: str) -> None:
    scenario = Scenario(place)
    async with scenario.recorded():
        await scenario.apply(uri)
        status = await scenario.wait_phase(Phase.READY, 1)
    assert scenario.phases(1) == FULL_PASS
    verified = next(one for one in status["conditions"] if one["type"] == "WeightsVerified")
    assert verified["status"] == "True"
    assert verified["message"] == f"proof: {PROOF[uri.partition(':')[0]]}"


async def test_artifact_named_by_its_digest_goes_to_ready(place: Place) -> None:
    registry, name = source_url(place.sandbox.site, "registry"), "models/llama-3.1-8b"
    url = f"{registry}/v2/{name}/manifests/fp16"
    async with aiohttp.ClientSession() as session, session.head(url, headers={"Accept": MANIFEST}) as answer:
        digest = answer.headers["Docker-Content-Digest"]
    scenario = Scenario(place)
    await scenario.apply(f"oci://{registry.removeprefix('http://')}/{name}@{digest}")
    await scenario.wait_phase(Phase.READY, 1)


async def test_private_repository_goes_to_ready_when_its_secret_may_be_read(place: Place, tmp_path: Path) -> None:
    write_model(tmp_path, ModelFolder(2 << 20, 1, seed=7, stub=FAST))
    write_repository(hub_root(place.sandbox.site), "org/private", tmp_path, private=True)
    scenario = Scenario(place)
    await scenario.kubectl("create", "secret", "generic", "hub", f"--from-literal=HF_TOKEN={TOKEN}")
    await scenario.apply("hf://org/private", annotations={CREDENTIALS: "hub"})
    status = await scenario.wait_phase(Phase.FAILED, 1, seconds=60)
    assert status["lastError"].startswith(f"AccessDenied: annotation {CREDENTIALS}: plnt may not read Secret hub")
    for command in re.findall(r"kubectl (create .+?)(?: && |$)", status["lastError"]):
        await scenario.kubectl(*shlex.split(command))
    await scenario.temporal("workflow", "reset", "-t", "FirstWorkflowTask", "--reason", "the Secret may be read now")
    await scenario.wait_status(lambda now: now["phase"] == Phase.READY, 90, "Ready")
    history = await scenario.temporal("workflow", "show", "-o", "json")
    assert TOKEN not in history
    assert TOKEN not in json.dumps(await scenario.read())


async def test_globs_that_match_no_weights_are_refused(place: Place) -> None:
    scenario = Scenario(place)
    await scenario.apply("hf://meta-llama/Llama-3.1-8B-Instruct", annotations={INCLUDE: "*.gguf"})
    status = await scenario.wait_phase(Phase.FAILED, 1, seconds=60)
    assert f"annotation {INCLUDE} *.gguf" in status["lastError"]
