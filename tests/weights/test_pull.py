"""Pulls from a real S3 server: whole, shared, killed, cancelled, from a source that changes."""

import asyncio
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from plnt.clients.weights import s3 as s3_module
from plnt.clients.weights.cache import Cache
from plnt.clients.weights.journal import Journal
from plnt.clients.weights.pull import Pull, PullSettings
from plnt.clients.weights.resolve import resolve_plan
from plnt.clients.weights.s3 import S3Sources
from plnt.clients.weights.throttle import Throttle
from plnt.errors import InsufficientDisk, SourceChanged
from plnt.model.pull_plan import PullPlan
from plnt.model.storage_uri import BucketUri, Scheme
from plnt.model.workflow_run import Quantization, Runtime
from plnt.sandbox.model_files import ModelFolder, write_model
from tests.fakes.object_store import ObjectStore, counting_proxy

BUCKET = "models"
MIB = 1 << 20


def make_settings(cache: Cache, rate: int | None = None) -> PullSettings:
    return PullSettings(cache=cache, open_source=S3Sources().open, throttle=Throttle(rate), connections=8)


async def make_plan(path: str) -> PullPlan:
    async with S3Sources().open(BucketUri(scheme=Scheme.S3, bucket=BUCKET, path=path)) as source:
        return await resolve_plan(source, Runtime.VLLM, Quantization.FP16)


async def until(condition: Callable[[], bool], seconds: float = 60) -> None:
    async with asyncio.timeout(seconds):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.02)


def read_tree(cache: Cache, digest: str) -> dict[str, bytes]:
    root = cache.root / "trees" / digest
    return {path.name: path.read_bytes() for path in root.iterdir() if not path.name.startswith(".plnt")}


def read_folder(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


async def test_pulled_tree_holds_the_very_files_read_only(
    s3_environ: ObjectStore, seeded: str, cache: Cache, model_folder: Path
) -> None:
    pull = Pull(make_settings(cache))
    tree = await pull.run(cache.write_plan(await make_plan("llama/fp16")))
    assert read_tree(cache, tree.digest) == read_folder(model_folder)
    assert tree.proof == "sha256"
    assert tree.bytes == sum(map(len, read_folder(model_folder).values()))
    assert {path.stat().st_mode & 0o777 for path in (cache.root / "trees" / tree.digest).iterdir()} == {0o444}
    assert not list((cache.root / "partials").iterdir())
    progress = pull.read_progress()
    assert (progress.bytes_done, progress.files_done) == (tree.bytes, len(read_folder(model_folder)))


async def test_second_pull_asks_the_source_for_nothing(
    s3_environ: ObjectStore, seeded: str, cache: Cache, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = cache.write_plan(await make_plan("llama/fp16"))
    first = await Pull(make_settings(cache)).run(plan)
    async with counting_proxy(s3_environ) as proxy:
        monkeypatch.setenv("AWS_ENDPOINT_URL_S3", proxy.endpoint)
        assert await Pull(make_settings(cache)).run(plan) == first
        assert proxy.served == 0


async def test_new_plan_fetches_only_what_the_cache_does_not_hold(
    s3_environ: ObjectStore, tmp_path: Path, cache: Cache, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_model(tmp_path / "m", ModelFolder(total_bytes=4 * MIB, shards=2))
    await s3_environ.seed(BUCKET, "changed", tmp_path / "m")
    first = await Pull(make_settings(cache)).run(cache.write_plan(await make_plan("changed")))
    await s3_environ.put(BUCKET, "changed/generation_config.json", b'{"temperature": 0.1}')
    plan = cache.write_plan(await make_plan("changed"))
    async with counting_proxy(s3_environ) as proxy:
        monkeypatch.setenv("AWS_ENDPOINT_URL_S3", proxy.endpoint)
        second = await Pull(make_settings(cache)).run(plan)
        assert proxy.served < 10_000
    assert second.digest != first.digest


async def test_two_pulls_of_one_plan_fetch_it_once(
    s3_environ: ObjectStore, seeded: str, cache: Cache, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = await make_plan("llama/fp16")
    digest = cache.write_plan(plan)
    async with counting_proxy(s3_environ) as proxy:
        monkeypatch.setenv("AWS_ENDPOINT_URL_S3", proxy.endpoint)
        pulls = [Pull(make_settings(Cache(cache.root), 24 * MIB)) for _ in range(2)]
        trees = await asyncio.gather(*(pull.run(digest) for pull in pulls))
        assert trees[0] == trees[1]
        assert proxy.served < plan.bytes * 1.02


async def test_pull_goes_on_for_the_one_who_waits_when_the_other_is_cancelled(
    s3_environ: ObjectStore, seeded: str, cache: Cache, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = await make_plan("llama/fp16")
    digest = cache.write_plan(plan)
    async with counting_proxy(s3_environ) as proxy:
        monkeypatch.setenv("AWS_ENDPOINT_URL_S3", proxy.endpoint)
        holder, waiter = Pull(make_settings(cache, 8 * MIB)), Pull(make_settings(cache))
        holding = asyncio.create_task(holder.run(digest))
        await until(lambda: holder.read_progress().bytes_done > 4 * MIB)
        waiting = asyncio.create_task(waiter.run(digest))
        await until(lambda: waiter.read_progress().waiting)
        holding.cancel()
        tree = await waiting
        assert tree.bytes == plan.bytes
        # What lay in buffers of cut sockets is lost, noted bytes are not.
        assert proxy.served < plan.bytes + 10 * MIB


async def test_cancelled_pull_stops_and_resumes_where_it_was(
    s3_environ: ObjectStore, seeded: str, cache: Cache
) -> None:
    plan = cache.write_plan(await make_plan("llama/fp16"))
    pull = Pull(make_settings(cache, 8 * MIB))
    task = asyncio.create_task(pull.run(plan))
    await until(lambda: pull.read_progress().bytes_done > 6 * MIB)
    began = time.monotonic()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert time.monotonic() - began < 20
    done = pull.read_progress().bytes_done
    again = Pull(make_settings(cache))
    await again.run(plan)
    assert again.read_progress().bytes_reused >= done - MIB


CHILD = """
import asyncio, sys
from pathlib import Path
from plnt.clients.weights.cache import Cache
from plnt.clients.weights.journal import Journal
from plnt.clients.weights.pull import Pull, PullSettings
from plnt.clients.weights.s3 import S3Sources
from plnt.clients.weights.throttle import Throttle
cache = Cache(Path(sys.argv[1]))
asyncio.run(Pull(PullSettings(cache, S3Sources().open, Throttle(6 << 20), 8)).run(sys.argv[2]))
"""


async def test_killed_pull_resumes_without_fetching_noted_bytes_again(
    s3_environ: ObjectStore, seeded: str, cache: Cache, model_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = await make_plan("llama/fp16")
    digest = cache.write_plan(plan)
    command = [sys.executable, "-c", CHILD, str(cache.root), digest]
    child = await asyncio.create_subprocess_exec(*command, env={**os.environ, **s3_environ.environ()})

    def count_noted() -> int:
        partials = sum(Journal(path).read().total for path in (cache.root / "partials").glob("*.journal"))
        return partials + sum(path.stat().st_size for path in (cache.root / "blobs").rglob("*") if path.is_file())

    await until(lambda: count_noted() > 8 * MIB)
    child.send_signal(signal.SIGKILL)
    await child.wait()
    noted = count_noted()
    async with counting_proxy(s3_environ) as proxy:
        monkeypatch.setenv("AWS_ENDPOINT_URL_S3", proxy.endpoint)
        began = time.monotonic()
        tree = await Pull(make_settings(cache)).run(digest)
        assert time.monotonic() - began < 25, "the dead holder's claim was waited for"
        assert proxy.served < plan.bytes - noted + 100_000
    assert read_tree(cache, tree.digest) == read_folder(model_folder)


async def test_object_replaced_during_the_pull_is_named(s3_environ: ObjectStore, tmp_path: Path, cache: Cache) -> None:
    write_model(tmp_path / "m", ModelFolder(total_bytes=12 * MIB, shards=1))
    await s3_environ.seed(BUCKET, "replaced", tmp_path / "m")
    plan = cache.write_plan(await make_plan("replaced"))
    shard = "model-00001-of-00001.safetensors"
    body = (tmp_path / "m" / shard).read_bytes()
    await s3_environ.put(BUCKET, f"replaced/{shard}", body[:-1] + bytes([body[-1] ^ 1]))
    with pytest.raises(SourceChanged, match=f"{shard} was replaced"):
        await Pull(make_settings(cache)).run(plan)


async def test_pull_that_does_not_fit_fails_before_the_first_byte(
    s3_environ: ObjectStore, seeded: str, cache: Cache, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = await make_plan("llama/fp16")
    digest = cache.write_plan(plan)
    async with counting_proxy(s3_environ) as proxy:
        monkeypatch.setenv("AWS_ENDPOINT_URL_S3", proxy.endpoint)
        with pytest.raises(InsufficientDisk, match=f"PLNT_CACHE_MAX_BYTES 1000000 and needs {plan.bytes}"):
            await Pull(make_settings(Cache(cache.root, max_bytes=1_000_000))).run(digest)
        assert proxy.served == 0


async def test_rate_stays_under_its_bound_and_the_loop_free(s3_environ: ObjectStore, seeded: str, cache: Cache) -> None:
    plan = await make_plan("llama/fp16")
    digest = cache.write_plan(plan)
    lags = []

    async def watch() -> None:
        while True:
            began = time.monotonic()
            await asyncio.sleep(0.02)
            lags.append(time.monotonic() - began - 0.02)

    watching = asyncio.create_task(watch())
    began = time.monotonic()
    await Pull(make_settings(cache, 12 * MIB)).run(digest)
    watching.cancel()
    assert plan.bytes / (time.monotonic() - began) < 12.5 * MIB
    assert sorted(lags)[len(lags) * 9 // 10] < 0.5


async def test_links_that_expire_during_the_pull_are_signed_again(
    s3_environ: ObjectStore, seeded: str, cache: Cache, model_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(s3_module, "LINK_SECONDS", 1)
    digest = cache.write_plan(await make_plan("llama/fp16"))
    pull = Pull(make_settings(cache, 6 * MIB))
    tree = await pull.run(digest)
    assert read_tree(cache, tree.digest) == read_folder(model_folder)
    assert pull.read_progress().retries >= 1, "no link expired: the store does not check"


NO_LOCKS = """
import fcntl
fcntl.flock = fcntl.lockf = lambda *_: None
"""


async def test_two_processes_on_a_volume_without_locks_fetch_a_tree_once(
    s3_environ: ObjectStore, seeded: str, cache: Cache, model_folder: Path
) -> None:
    plan = await make_plan("llama/fp16")
    digest = cache.write_plan(plan)
    async with counting_proxy(s3_environ) as proxy:
        environ = {**os.environ, **s3_environ.environ(proxy.endpoint)}
        command = [sys.executable, "-c", NO_LOCKS + CHILD, str(cache.root), digest]
        workers = [await asyncio.create_subprocess_exec(*command, env=environ) for _ in range(2)]
        assert [await worker.wait() for worker in workers] == [0, 0]
        assert proxy.served < plan.bytes * 1.02
    (tree,) = (cache.root / "trees").iterdir()
    assert read_tree(cache, tree.name) == read_folder(model_folder)
