"""What a source must hold, and what a user reads when it does not."""

import json
from pathlib import Path

import pytest

from plnt.clients.weights.resolve import resolve_plan
from plnt.clients.weights.s3 import S3Sources
from plnt.errors import AccessDenied, PlntError, SourceUnavailable, SpecInvalid, UnsupportedCombination, WeightsNotFound
from plnt.model.pull_plan import PullPlan
from plnt.model.storage_uri import BucketUri, Scheme
from plnt.model.workflow_run import Quantization, Runtime
from plnt.sandbox.model_files import ModelFolder, write_model
from tests.fakes.file_server import FileServer
from tests.fakes.object_store import STRANGER_KEY, STRANGER_SECRET, ObjectStore

BUCKET = "models"


async def resolve(path: str, quantization: Quantization = Quantization.FP16, bucket: str = BUCKET) -> PullPlan:
    async with S3Sources().open(BucketUri(scheme=Scheme.S3, bucket=bucket, path=path)) as source:
        return await resolve_plan(source, Runtime.VLLM, quantization)


def read_folder(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.fixture
def small(tmp_path: Path) -> Path:
    folder = tmp_path / "small"
    write_model(folder, ModelFolder(total_bytes=2 << 20, shards=2))
    return folder


async def test_plan_pins_every_file_with_size_validator_and_published_digest(
    s3_environ: ObjectStore, seeded: str, model_folder: Path
) -> None:
    plan = await resolve("llama/fp16")
    sizes = {path: len(data) for path, data in read_folder(model_folder).items()}
    assert {file.path: file.size for file in plan.files} == sizes
    assert all(file.validator and len(file.sha256) == 64 for file in plan.files)
    assert plan.proof == "sha256"
    assert plan.source == seeded


async def test_plan_leaves_out_a_folder_whose_name_only_starts_alike(
    s3_environ: ObjectStore, seeded: str, small: Path
) -> None:
    await s3_environ.seed(BUCKET, "llama/fp16-other", small)
    assert not [file.path for file in (await resolve("llama/fp16")).files if "other" in file.path]


async def test_plan_leaves_out_other_formats_of_the_same_weights(s3_environ: ObjectStore, small: Path) -> None:
    extra = ("pytorch_model.bin", "consolidated.safetensors", "original/params.json", "modeling.py", "model.gguf")
    for name in extra:
        (small / name).parent.mkdir(exist_ok=True)
        (small / name).write_bytes(b"{}")
    await s3_environ.seed(BUCKET, "formats", small)
    assert not {file.path for file in (await resolve("formats")).files} & set(extra)


@pytest.mark.parametrize(
    ("bucket", "path", "words"),
    [
        pytest.param(BUCKET, "nothing/here", ["nothing/here/", BUCKET, "spec.model.storageUri"], id="empty prefix"),
        pytest.param("no-such-bucket", "x", ["no-such-bucket", "spec.model.storageUri"], id="no bucket"),
    ],
)
async def test_source_that_is_not_there_is_named(
    s3_environ: ObjectStore, bucket: str, path: str, words: list[str]
) -> None:
    with pytest.raises(WeightsNotFound) as error:
        await resolve(path, bucket=bucket)
    assert all(word in str(error.value) for word in words)


@pytest.mark.parametrize(
    ("key", "secret"),
    [
        pytest.param(STRANGER_KEY, STRANGER_SECRET, id="no right"),
        pytest.param("unknown", "unknown", id="unknown key"),
        pytest.param("plnt", "wrong", id="wrong secret"),
    ],
)
async def test_source_without_access_says_which_rights_are_needed(
    s3_environ: ObjectStore, monkeypatch: pytest.MonkeyPatch, key: str, secret: str
) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", key)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", secret)
    with pytest.raises(AccessDenied, match="s3:ListBucket on bucket models and s3:GetObject"):
        await resolve("llama/fp16")


async def test_endpoint_that_does_not_answer_is_retried(
    s3_environ: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", "http://127.0.0.1:1")
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    with pytest.raises(SourceUnavailable):
        await resolve("llama/fp16")


LFS = b"version https://git-lfs.github.com/spec/v1\noid sha256:" + b"0" * 64 + b"\nsize 123\n"


@pytest.mark.parametrize(
    ("name", "content", "error", "words"),
    [
        pytest.param("config.json", None, WeightsNotFound, "no config.json", id="no configuration"),
        pytest.param("tokenizer.json", None, WeightsNotFound, "no tokenizer", id="no tokenizer"),
        pytest.param("model-00002-of-00002.safetensors", None, WeightsNotFound, "1 of 2 shards", id="missing shard"),
        pytest.param("model-00001-of-00002.safetensors", LFS, WeightsNotFound, "git-lfs pointer", id="pointer"),
        pytest.param("config.json", b"<html>", SpecInvalid, "no JSON object", id="not JSON"),
        pytest.param("model.safetensors.index.json", b"{}", SpecInvalid, "weight_map", id="index without shards"),
    ],
)
async def test_folder_that_is_no_model_is_refused(
    server: FileServer, small: Path, name: str, content: bytes | None, error: type[PlntError], words: str
) -> None:
    server.files = read_folder(small)
    server.files[name] = content or b""
    if content is None:
        del server.files[name]
    with pytest.raises(error, match=words):
        await resolve_plan(server, Runtime.VLLM, Quantization.FP16)


@pytest.mark.parametrize("name", ["../../etc/passwd", "a/../b", "/etc/passwd", "a\\b", ".plnt-manifest.json", "a\nb"])
async def test_unsafe_name_is_refused_and_shown(server: FileServer, small: Path, name: str) -> None:
    server.files = read_folder(small) | {name: b"x"}
    with pytest.raises(SpecInvalid, match="file name") as error:
        await resolve_plan(server, Runtime.VLLM, Quantization.FP16)
    assert repr(name) in str(error.value)


async def test_checkpoint_of_another_quantization_is_refused_with_the_fitting_one(
    server: FileServer, small: Path
) -> None:
    server.files = read_folder(small)
    config = json.loads(server.files["config.json"]) | {"quantization_config": {"quant_method": "fp8"}}
    server.files["config.json"] = json.dumps(config).encode()
    with pytest.raises(UnsupportedCombination, match=r"set spec\.model\.quantization to fp8"):
        await resolve_plan(server, Runtime.VLLM, Quantization.FP16)
    assert await resolve_plan(server, Runtime.VLLM, Quantization.FP8)
