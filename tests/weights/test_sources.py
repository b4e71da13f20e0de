"""Weights from real servers of every scheme: pinned, proven, the very bytes."""

import asyncio
import base64
import json
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest
from huggingface_hub import snapshot_download

from plnt.clients.weights.cache import Cache
from plnt.clients.weights.credentials import Credentials
from plnt.clients.weights.pull import Pull, PullSettings
from plnt.clients.weights.resolve import resolve
from plnt.clients.weights.sources import Sources
from plnt.clients.weights.throttle import Throttle
from plnt.errors import AccessDenied, DigestMismatch, SourceChanged, SpecInvalid, WeightsNotFound
from plnt.model.file_choice import Globs
from plnt.model.messages import Tree
from plnt.model.pull_plan import PullPlan
from plnt.model.storage_uri import parse_storage_uri
from plnt.model.workflow_run import Quantization, Runtime
from plnt.sandbox.sources.hub import TOKEN, write_repository
from plnt.sandbox.sources.seed import (
    EMPTY,
    IMAGE_CONFIG,
    IMAGE_LAYER,
    MANIFEST,
    TITLE,
    Blob,
    Pusher,
    list_files,
    pack,
    push_files,
    push_modelcar,
    push_modelpack,
    seed_gs,
)
from plnt.settings import PoolSettings
from tests.fakes.object_store import ACCESS_KEY, SECRET_KEY, STRANGER_KEY, STRANGER_SECRET, ObjectStore
from tests.fakes.source_servers import SourceServers, running_source_servers
from tests.fakes.token_server import PASSWORD, USER, running_private_registry


@pytest.fixture(scope="session")
async def servers(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[SourceServers]:
    async with running_source_servers(tmp_path_factory.mktemp("sources")) as running:
        yield running


async def make_plan(
    servers: SourceServers, uri: str, globs: Globs | None = None, credentials: Credentials | None = None
) -> PullPlan:
    async with Sources(servers.settings()).open(parse_storage_uri(uri), credentials) as source:
        return (await resolve(source, Runtime.VLLM, Quantization.FP16, globs)).plan


async def pull(servers: SourceServers, cache: Cache, plan: PullPlan, credentials: Credentials | None = None) -> Tree:
    settings = servers.settings()
    shared = PullSettings(
        cache, Sources(settings).open, Throttle(None), 4, settings.private_hosts, stall_seconds=5, pause_seconds=0.02
    )
    return await Pull(shared, credentials).run(cache.write_plan(plan))


def read_tree(cache: Cache, tree: Tree) -> dict[str, bytes]:
    root = cache.root / "trees" / tree.digest
    return {path.name: path.read_bytes() for path in root.iterdir() if not path.name.startswith(".plnt")}


def read_folder(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


async def test_bucket_of_google_comes_whole_and_proven_by_its_crc(
    servers: SourceServers, cache: Cache, model_folder: Path
) -> None:
    await seed_gs(servers.gs, "models", "llama/fp16", model_folder)
    plan = await make_plan(servers, "gs://models/llama/fp16")
    tree = await pull(servers, cache, plan)
    assert read_tree(cache, tree) == read_folder(model_folder)
    assert tree.proof == "crc32c"
    assert all(file.version.isdecimal() for file in plan.files)


async def test_object_of_google_that_is_written_again_is_noticed(
    servers: SourceServers, cache: Cache, model_folder: Path, tmp_path: Path
) -> None:
    await seed_gs(servers.gs, "changing", "m", model_folder)
    plan = await make_plan(servers, "gs://changing/m")
    (tmp_path / "config.json").write_bytes(b'{"model_type": "other"}')
    await seed_gs(servers.gs, "changing", "m", tmp_path)
    with pytest.raises(SourceChanged, match=r"config\.json"):
        await pull(servers, cache, plan)


async def test_crc_that_differs_is_named_with_the_file(
    servers: SourceServers, cache: Cache, model_folder: Path
) -> None:
    await seed_gs(servers.gs, "damaged", "m", model_folder)
    plan = await make_plan(servers, "gs://damaged/m")
    files = [file.model_copy(update={"checksum": "crc32c:00000000"}) for file in plan.files]
    with pytest.raises(DigestMismatch, match="crc32c"):
        await pull(servers, cache, plan.model_copy(update={"files": files}))


async def test_bucket_of_google_that_is_not_there_is_named(servers: SourceServers) -> None:
    with pytest.raises(WeightsNotFound, match="no-such"):
        await make_plan(servers, "gs://no-such/m")


@pytest.mark.parametrize("push", [push_modelpack, push_files, push_modelcar])
async def test_artifact_comes_whole_by_tag_and_by_digest(
    servers: SourceServers, cache: Cache, model_folder: Path, push: object
) -> None:
    name = push.__name__.replace("_", "-")  # type: ignore[attr-defined]
    digest = await push(servers.registry, name, "v1", model_folder)  # type: ignore[operator]
    plans = [await make_plan(servers, f"oci://{servers.registry_host}/{name}{end}") for end in (":v1", f"@{digest}")]
    assert plans[0] == plans[1]
    assert plans[0].source == f"oci://{servers.registry_host}/{name}@{digest}"
    tree = await pull(servers, cache, plans[0])
    assert read_tree(cache, tree) == read_folder(model_folder)
    assert tree.proof == "sha256"
    blobs = {path.name for path in (cache.root / "blobs").rglob("*") if path.is_file()}
    assert len(blobs) == len(read_folder(model_folder))


async def test_index_leads_to_the_image_for_linux(servers: SourceServers, cache: Cache, model_folder: Path) -> None:
    digest = await push_modelpack(servers.registry, "indexed", "model", model_folder)
    async with (
        aiohttp.ClientSession() as session,
        session.get(f"{servers.registry}/v2/indexed/manifests/{digest}", headers={"Accept": MANIFEST}) as answer,
    ):
        size = len(await answer.read())
    entry = {"mediaType": MANIFEST, "digest": digest, "size": size}
    attestation = {**entry, "platform": {"os": "unknown", "architecture": "unknown"}}
    real = {**entry, "platform": {"os": "linux", "architecture": "amd64"}}
    await Pusher(servers.registry, "indexed").push_index("all", [attestation, real])
    plan = await make_plan(servers, f"oci://{servers.registry_host}/indexed:all")
    assert read_tree(cache, await pull(servers, cache, plan)) == read_folder(model_folder)


async def push_image(servers: SourceServers, name: str, *layers: bytes) -> str:
    config = Blob(b'{"os": "linux"}', IMAGE_CONFIG)
    await Pusher(servers.registry, name).push("v1", config, [Blob(layer, IMAGE_LAYER) for layer in layers])
    return f"oci://{servers.registry_host}/{name}:v1"


def model_members(folder: Path) -> dict[str, bytes]:
    return {f"models/{name}": data for name, data in sorted(read_folder(folder).items())}


async def test_later_layers_of_an_image_replace_and_remove_files(
    servers: SourceServers, cache: Cache, model_folder: Path
) -> None:
    base = {**model_members(model_folder), "models/LICENSE": b"old", "models/tokenizer.model": b"x", "etc/hosts": b"x"}
    above = {"models/LICENSE": b"new", "models/.wh.tokenizer.model": b""}
    uri = await push_image(servers, "layered", pack(base), pack(above))
    tree = await pull(servers, cache, await make_plan(servers, uri))
    assert read_tree(cache, tree) == {**read_folder(model_folder), "LICENSE": b"new"}


async def test_repository_of_the_hub_comes_whole_at_its_commit(
    servers: SourceServers, cache: Cache, model_folder: Path
) -> None:
    commit = write_repository(servers.hub_root, "org/llama", model_folder)
    plan = await make_plan(servers, "hf://org/llama")
    assert plan.source == f"hf://org/llama@{commit}"
    tree = await pull(servers, cache, plan)
    assert read_tree(cache, tree) == read_folder(model_folder)
    assert tree.proof == "sha256 and git-sha1"
    assert await make_plan(servers, "hf://org/llama@main") == plan


async def test_hub_that_moves_its_branch_still_gives_what_was_pinned(
    servers: SourceServers, cache: Cache, model_folder: Path, tmp_path: Path
) -> None:
    write_repository(servers.hub_root, "org/moving", model_folder)
    plan = await make_plan(servers, "hf://org/moving@main")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "config.json").write_text("{}")
    write_repository(servers.hub_root, "org/moving", tmp_path / "other")
    assert read_tree(cache, await pull(servers, cache, plan)) == read_folder(model_folder)


async def test_private_repository_opens_for_the_secrets_token_alone(
    servers: SourceServers, cache: Cache, model_folder: Path
) -> None:
    write_repository(servers.hub_root, "org/private", model_folder, private=True)
    with pytest.raises(WeightsNotFound, match=r"plnt\.work/credentials"):
        await make_plan(servers, "hf://org/private")
    credentials = Credentials("default/hub", {"HF_TOKEN": TOKEN})
    plan = await make_plan(servers, "hf://org/private", credentials=credentials)
    tree = await pull(servers, cache, plan, credentials)
    assert read_tree(cache, tree) == read_folder(model_folder)
    assert TOKEN not in repr(credentials)
    assert not [path for path in cache.root.rglob("*") if path.is_file() and TOKEN.encode() in path.read_bytes()]


async def test_gated_repository_says_what_to_do(servers: SourceServers, model_folder: Path) -> None:
    write_repository(servers.hub_root, "org/gated", model_folder, gated=True)
    with pytest.raises(AccessDenied, match="HF_TOKEN"):
        await make_plan(servers, "hf://org/gated")


@pytest.mark.parametrize(
    ("uri", "error"),
    [("hf://org/absent", WeightsNotFound), ("hf://org/present@absent", WeightsNotFound)],
)
async def test_repository_that_is_not_there_is_named(
    servers: SourceServers, model_folder: Path, uri: str, error: type[Exception]
) -> None:
    write_repository(servers.hub_root, "org/present", model_folder)
    with pytest.raises(error, match="org/"):
        await make_plan(servers, uri)


async def test_globs_choose_what_is_pulled(servers: SourceServers, model_folder: Path, tmp_path: Path) -> None:
    folder = tmp_path / "more"
    folder.mkdir()
    for name, data in read_folder(model_folder).items():
        (folder / name).write_bytes(data)
    (folder / "modeling.py").write_bytes(b"pass")
    (folder / "LICENSE").write_bytes(b"free")
    write_repository(servers.hub_root, "org/globs", folder)
    globs = Globs(include=["*.safetensors", "modeling.py"], exclude=["LICENSE*"])
    names = {file.path for file in (await make_plan(servers, "hf://org/globs", globs)).files}
    assert names == {*read_folder(model_folder), "modeling.py"}
    with pytest.raises(WeightsNotFound, match=r"plnt\.work/include"):
        await make_plan(servers, "hf://org/globs", Globs(include=["*.gguf"]))


async def test_the_hubs_own_client_downloads_from_the_double(
    servers: SourceServers, model_folder: Path, tmp_path: Path
) -> None:
    """Proves the double: what it answers is what the real client expects."""
    commit = write_repository(servers.hub_root, "org/proof", model_folder)
    path = await asyncio.to_thread(
        snapshot_download, "org/proof", endpoint=servers.hub_url, cache_dir=tmp_path, token=False
    )
    assert Path(path).name == commit
    assert read_folder(Path(path)) == read_folder(model_folder)


async def test_config_deep_in_a_large_archive_is_asked_for_first(
    servers: SourceServers, model_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("plnt.clients.weights.oci.SCAN_BYTES", 1 << 20)
    members = model_members(model_folder)
    late = {**{k: v for k, v in members.items() if k.endswith("safetensors")}, **members}
    uri = await push_image(servers, "late", pack(late))
    with pytest.raises(WeightsNotFound, match="layer of its own"):
        await make_plan(servers, uri)


async def test_large_archive_is_unpacked_when_its_configuration_comes_first(
    servers: SourceServers, cache: Cache, model_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("plnt.clients.weights.oci.SCAN_BYTES", 1 << 20)
    uri = await push_image(servers, "early", pack(dict(sorted(model_members(model_folder).items()))))
    tree = await pull(servers, cache, await make_plan(servers, uri))
    assert read_tree(cache, tree) == read_folder(model_folder)


async def test_manifest_without_weights_is_refused(servers: SourceServers) -> None:
    await Pusher(servers.registry, "docs").push(
        "v1",
        Blob(b"{}", "application/vnd.cncf.model.config.v1+json"),
        [Blob(b"x", "application/vnd.cncf.model.doc.v1.raw")],
    )
    with pytest.raises(SpecInvalid, match="no layer of weights"):
        await make_plan(servers, f"oci://{servers.registry_host}/docs:v1")


def docker_config(host: str, user: str, password: str) -> Credentials:
    auth = base64.b64encode(f"{user}:{password}".encode()).decode()
    return Credentials("default/pull", {".dockerconfigjson": json.dumps({"auths": {host: {"auth": auth}}})})


async def test_private_registry_opens_with_the_secrets_login_alone(
    cache: Cache, model_folder: Path, tmp_path: Path
) -> None:
    async with running_private_registry(tmp_path) as private:
        host, realm = private.registry.removeprefix("http://"), private.realm.split("/")[2]
        headers = {"Authorization": f"Bearer {private.make_token('repository:org/model:pull,push')}"}
        config = Blob(b"{}", EMPTY)
        layers = [
            Blob(path.read_bytes(), "application/octet-stream", {TITLE: path.name}) for path in list_files(model_folder)
        ]
        await Pusher(private.registry, "org/model", headers).push("v1", config, layers, "application/vnd.example")
        settings = PoolSettings.read({"PLNT_WEIGHTS_PRIVATE_HOSTS": f"{host},{realm}"})
        uri = parse_storage_uri(f"oci://{host}/org/model:v1")

        async def make(credentials: Credentials | None) -> PullPlan:
            async with Sources(settings).open(uri, credentials) as source:
                return (await resolve(source, Runtime.VLLM, Quantization.FP16)).plan

        for wrong in (None, docker_config(host, USER, "guess"), docker_config("other.test", USER, PASSWORD)):
            with pytest.raises(AccessDenied, match=r"plnt\.work/credentials"):
                await make(wrong)
        credentials = docker_config(host, USER, PASSWORD)
        shared = PullSettings(cache, Sources(settings).open, Throttle(None), 4, settings.private_hosts)
        tree = await Pull(shared, credentials).run(cache.write_plan(await make(credentials)))
        assert read_tree(cache, tree) == read_folder(model_folder)
        assert set(private.asked) == {"repository:org/model:pull"}


async def test_bucket_opens_with_the_secrets_keys_where_the_pools_own_are_refused(
    s3_environ: ObjectStore, seeded: str, cache: Cache, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", STRANGER_KEY)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", STRANGER_SECRET)
    keys = {"AWS_ACCESS_KEY_ID": ACCESS_KEY, "AWS_SECRET_ACCESS_KEY": SECRET_KEY}
    credentials, sources, uri = (
        Credentials("default/keys", keys),
        Sources(PoolSettings.read({})),
        parse_storage_uri(seeded),
    )
    async with sources.open(uri) as source:
        with pytest.raises(AccessDenied):
            await source.list_files()
    async with sources.open(uri, credentials) as source:
        plan = (await resolve(source, Runtime.VLLM, Quantization.FP16)).plan
    tree = await Pull(PullSettings(cache, sources.open, Throttle(None), 4), credentials).run(cache.write_plan(plan))
    assert tree.bytes == plan.bytes


@pytest.mark.parametrize(
    ("scheme", "foreign"),
    [
        ("s3", {"gcsfs", "huggingface_hub"}),
        ("oci", {"gcsfs", "huggingface_hub", "aioboto3"}),
        ("gs", {"huggingface_hub", "aioboto3"}),
        ("hf", {"gcsfs", "aioboto3"}),
    ],
)
def test_pool_loads_the_client_of_the_scheme_in_use_alone(scheme: str, foreign: set[str]) -> None:
    """Each library takes memory that a worker of another scheme needs for weights."""
    uri = {"s3": "s3://bucket/m", "gs": "gs://bucket/m", "oci": "oci://r.test/m:v1", "hf": "hf://o/m"}[scheme]
    code = (
        "import asyncio, sys\n"
        "from plnt.clients.weights.sources import Sources\n"
        "from plnt.model.storage_uri import parse_storage_uri\n"
        "from plnt.settings import PoolSettings\n"
        "settings = PoolSettings.read({'STORAGE_EMULATOR_HOST': 'http://127.0.0.1:1'})\n"
        "async def main():\n"
        f"    async with Sources(settings).open(parse_storage_uri('{uri}')):\n"
        "        print(' '.join(sys.modules))\n"
        "asyncio.run(main())\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not foreign & set(done.stdout.split())
