"""A real S3 server for this folder's tests, and small models on it."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from plnt.clients.weights.cache import Cache
from plnt.sandbox.model_files import ModelFolder, write_model
from tests.fakes.file_server import FileServer, running_file_server
from tests.fakes.object_store import ObjectStore, running_object_store

BUCKET = "models"


@pytest.fixture(scope="session")
async def s3(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[ObjectStore]:
    async with running_object_store(tmp_path_factory.mktemp("s3")) as store:
        folder = tmp_path_factory.mktemp("first")
        (folder / "ready").write_bytes(b"ready")
        await store.seed(BUCKET, "ready", folder)
        yield store


@pytest.fixture
def s3_environ(s3: ObjectStore, monkeypatch: pytest.MonkeyPatch) -> ObjectStore:
    for key, value in s3.environ().items():
        monkeypatch.setenv(key, value)
    return s3


@pytest.fixture(scope="session")
def model_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("model")
    write_model(folder, ModelFolder(total_bytes=24 << 20, shards=2))
    return folder


@pytest.fixture(scope="session")
async def seeded(s3: ObjectStore, model_folder: Path) -> str:
    """URI of a model on the S3 server."""
    await s3.seed(BUCKET, "llama/fp16", model_folder)
    return f"s3://{BUCKET}/llama/fp16"


@pytest.fixture
def cache(tmp_path: Path) -> Cache:
    cache = Cache(tmp_path / "cache")
    cache.prepare()
    return cache


@pytest.fixture
async def server() -> AsyncIterator[FileServer]:
    async with running_file_server({}) as server:
        yield server
