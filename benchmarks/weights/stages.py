"""The servers that models are pulled from, each holding one: the sandbox's own, on free ports of this machine."""

import asyncio
import json
import os
import shutil
import struct
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from urllib.parse import urlsplit

import aioboto3
import aiohttp

from plnt.sandbox.model_files import ModelFolder, write_model
from plnt.sandbox.pki import Authority
from plnt.sandbox.sources.components import gs_command
from plnt.sandbox.sources.hub import write_repository
from plnt.sandbox.sources.seed import list_files, push_files, seed_gs
from tests.fakes.object_store import running_object_store
from tests.fakes.source_servers import find_folder, free_port, running_process, running_registry, wait_answer

BUCKET, PREFIX = "models", "bench"
REPOSITORY = "example/bench"
SMALL_FILES = 16
SHARDS = 4


@dataclass(frozen=True)
class Stage:
    """A model at a server."""

    uri: str
    environ: Mapping[str, str]
    total: int
    """Bytes of the model."""
    endpoint: str
    """Name of the variable that leads to the server."""

    @property
    def port(self) -> int:
        return int(urlsplit(self.environ[self.endpoint]).port or 0)

    def through(self, port: int) -> "Stage":
        """Give the same by way of a proxy on ``port``."""
        way = self.environ[self.endpoint].replace(f":{self.port}", f":{port}")
        return replace(self, environ={**self.environ, self.endpoint: way})


def write_bench_model(folder: Path, size_mib: int) -> int:
    """Write shards and small files; gives their bytes."""
    write_model(folder, ModelFolder(total_bytes=size_mib << 20, shards=SHARDS))
    for number in range(SMALL_FILES):
        (folder / f"extra-{number:02}.json").write_text(json.dumps({"number": number, "filler": "x" * 30_000}))
    return sum(path.stat().st_size for path in folder.iterdir())


def write_sparse_model(folder: Path, size_gib: int) -> int:
    """Write a model whose weights are holes: true headers, no data on the volume; gives its bytes."""
    write_model(folder, ModelFolder(total_bytes=1 << 20, shards=SHARDS))
    shards = sorted(folder.glob("*.safetensors"))
    numbers = (size_gib << 30) // SHARDS // 2
    for number, path in enumerate(shards):
        tensor = {"dtype": "BF16", "shape": [numbers], "data_offsets": [0, numbers * 2]}
        header = json.dumps({f"weight.{number}": tensor}).encode()
        path.write_bytes(struct.pack("<Q", len(header)) + header)
        os.truncate(path, 8 + len(header) + numbers * 2)
    index = {"metadata": {}, "weight_map": {f"weight.{number}": path.name for number, path in enumerate(shards)}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    return sum(path.stat().st_size for path in folder.iterdir())


def list_environ(**own: str) -> dict[str, str]:
    """Give the environment of a contestant: no proxies, no settings of the one who measures."""
    foreign = ("_PROXY", "AWS_", "HF_", "SSL_", "REQUESTS_", "CURL_", "GOOGLE_", "STORAGE_EMULATOR", "PLNT_")
    kept = {key: value for key, value in os.environ.items() if not any(word in key.upper() for word in foreign)}
    return {**kept, "PYTHONPATH": str(Path.cwd()), **own}


@asynccontextmanager
async def s3_stage(work: Path, model: Path, total: int, *, tls: bool = False) -> AsyncIterator[Stage]:
    """Serve from SeaweedFS."""
    (work / "s3").mkdir(parents=True)
    authority = Authority(work / "pki") if tls else None
    pair = authority.issue("server", "server") if authority is not None else None
    async with running_object_store(work / "s3", tls=pair) as store:
        environ = list_environ(**store.environ())
        await wait_answer(store.plain_endpoint)
        await upload(store.environ(store.plain_endpoint), model)
        if authority is not None:
            environ["AWS_CA_BUNDLE"] = str(authority.certificate)
        yield Stage(f"s3://{BUCKET}/{PREFIX}", environ, total, "AWS_ENDPOINT_URL_S3")


async def upload(environ: Mapping[str, str], model: Path) -> None:
    """Upload in parts of 8 MiB, as the usual tools do."""
    client = aioboto3.Session().client(
        "s3",
        endpoint_url=environ["AWS_ENDPOINT_URL_S3"],
        aws_access_key_id=environ["AWS_ACCESS_KEY_ID"],
        aws_secret_access_key=environ["AWS_SECRET_ACCESS_KEY"],
        region_name=environ["AWS_REGION"],
    )
    async with client as store:
        await store.create_bucket(Bucket=BUCKET)
        for path in await asyncio.to_thread(list_files, model):
            await store.upload_file(str(path), BUCKET, f"{PREFIX}/{path.name}")


@asynccontextmanager
async def gs_stage(work: Path, model: Path, total: int) -> AsyncIterator[Stage]:
    """Serve from fake-gcs-server."""
    port = free_port()
    endpoint = f"http://127.0.0.1:{port}"
    async with running_process(*gs_command(find_folder(), work / "gs", port)):
        await wait_answer(f"{endpoint}/_internal/healthcheck")
        await seed_gs(endpoint, BUCKET, PREFIX, model)
        environ = list_environ(STORAGE_EMULATOR_HOST=endpoint)
        yield Stage(f"gs://{BUCKET}/{PREFIX}", environ, total, "STORAGE_EMULATOR_HOST")


@asynccontextmanager
async def oci_stage(work: Path, model: Path, total: int) -> AsyncIterator[Stage]:
    """Serve from the CNCF registry, as an artifact of titled files."""
    async with running_registry(work / "registry") as url:
        await push_files(url, BUCKET, PREFIX, model)
        host = url.removeprefix("http://")
        environ = list_environ(PLNT_WEIGHTS_PRIVATE_HOSTS=host)
        yield Stage(f"oci://{host}/{BUCKET}:{PREFIX}", environ, total, "")


@asynccontextmanager
async def hf_stage(work: Path, model: Path, total: int) -> AsyncIterator[Stage]:
    """Serve from the sandbox's Hub, a process of its own."""
    root, port = work / "hub", free_port()
    await asyncio.to_thread(commit, root, model)
    endpoint = f"http://127.0.0.1:{port}"
    command = (sys.executable, "-m", "plnt.sandbox.sources", "--root", str(root), "--port", str(port))
    async with running_process(*command):
        await wait_answer(f"{endpoint}/healthz")
        # The Hub computes its sums at the first listing.
        patient = aiohttp.ClientTimeout(total=600)
        async with (
            aiohttp.ClientSession(timeout=patient) as session,
            session.get(f"{endpoint}/api/models/{REPOSITORY}/tree/main") as answer,
        ):
            answer.raise_for_status()
        environ = list_environ(HF_ENDPOINT=endpoint, PLNT_WEIGHTS_PRIVATE_HOSTS=f"localhost:{port}")
        yield Stage(f"hf://{REPOSITORY}", environ, total, "HF_ENDPOINT")


def commit(root: Path, model: Path) -> None:
    """Put the model into the repository: by links, so that holes stay holes."""
    small = root.with_name("small")
    small.mkdir(parents=True)
    for path in model.glob("*.json"):
        shutil.copyfile(path, small / path.name)
    folder = root / REPOSITORY / write_repository(root, REPOSITORY, small)
    for path in model.glob("*.safetensors"):
        os.link(path, folder / path.name)
