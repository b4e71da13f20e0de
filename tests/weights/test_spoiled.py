"""Pulls from a real S3 server through a proxy that spoils answers, and pulls that are killed at random moments."""

from contextlib import suppress
from pathlib import Path

import pytest

from plnt.clients.weights.cache import Cache
from plnt.clients.weights.pull import Pull, PullSettings
from plnt.clients.weights.resolve import resolve_plan
from plnt.clients.weights.s3 import S3Sources
from plnt.clients.weights.throttle import Throttle
from plnt.errors import SourceChanged, SourceUnavailable
from plnt.model.messages import Tree
from plnt.model.pull_plan import PullPlan
from plnt.model.storage_uri import BucketUri, Scheme
from plnt.model.workflow_run import Quantization, Runtime
from tests.fakes.object_store import ObjectStore
from tests.fakes.pull_soak import hash_folder, soak
from tests.fakes.spoiling_proxy import Spoil, fault_proxy

REPAIRED = [spoil for spoil in Spoil if spoil is not Spoil.UNRANGED]

TRIES = 20

pytestmark = pytest.mark.timeout(120)


async def make_plan() -> PullPlan:
    async with S3Sources().open(BucketUri(scheme=Scheme.S3, bucket="models", path="llama/fp16")) as source:
        return await resolve_plan(source, Runtime.VLLM, Quantization.FP16)


def make_settings(cache: Cache) -> PullSettings:
    return PullSettings(cache, S3Sources().open, Throttle(None), 8, stall_seconds=0.5, pause_seconds=0.02)


async def pull(cache: Cache, plan: str) -> Tree:
    """Pull as the step does it: a source that spoils too many answers in a row is tried again."""
    for _ in range(TRIES):
        with suppress(SourceUnavailable):
            return await Pull(make_settings(cache)).run(plan)
    pytest.fail(f"no tree within {TRIES} tries")


@pytest.mark.parametrize("spoil", REPAIRED)
async def test_pull_outlasts_each_fault_and_ends_with_the_very_bytes(
    spoil: Spoil,
    s3_environ: ObjectStore,
    seeded: str,
    cache: Cache,
    model_folder: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    plan = cache.write_plan(await make_plan())
    async with fault_proxy(s3_environ.endpoint, [spoil], rate=0.6, seed=3) as proxy:
        monkeypatch.setenv("AWS_ENDPOINT_URL_S3", proxy.endpoint)
        tree = await pull(cache, plan)
        assert spoil in proxy.met
    assert hash_folder(cache.root / "trees" / tree.digest) == hash_folder(model_folder)


@pytest.mark.parametrize("seed", range(3))
async def test_pull_outlasts_all_faults_at_once(
    seed: int, s3_environ: ObjectStore, seeded: str, cache: Cache, model_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = cache.write_plan(await make_plan())
    async with fault_proxy(s3_environ.endpoint, REPAIRED, rate=0.4, seed=seed) as proxy:
        monkeypatch.setenv("AWS_ENDPOINT_URL_S3", proxy.endpoint)
        tree = await pull(cache, plan)
    assert hash_folder(cache.root / "trees" / tree.digest) == hash_folder(model_folder)


async def test_source_that_has_no_such_range_any_more_is_named(
    s3_environ: ObjectStore, seeded: str, cache: Cache, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = cache.write_plan(await make_plan())
    async with fault_proxy(s3_environ.endpoint, [Spoil.UNRANGED], rate=1) as proxy:
        monkeypatch.setenv("AWS_ENDPOINT_URL_S3", proxy.endpoint)
        with pytest.raises(SourceChanged, match="was replaced at the source"):
            await Pull(make_settings(cache)).run(plan)


async def test_pulls_killed_at_random_moments_end_with_the_very_bytes(
    s3_environ: ObjectStore, seeded: str, cache: Cache, model_folder: Path
) -> None:
    counts = await soak(s3_environ, s3_environ.endpoint, cache, await make_plan(), model_folder, kills=12, seed=5)
    assert counts["killed"] == 12
    assert counts["ended"] >= 1


async def test_pulls_killed_at_random_moments_of_a_spoiled_source_end_with_the_very_bytes(
    s3_environ: ObjectStore, seeded: str, cache: Cache, model_folder: Path
) -> None:
    spoils = [Spoil.CUT, Spoil.SHORT, Spoil.STORM, Spoil.BUSY]
    async with fault_proxy(s3_environ.endpoint, spoils, rate=0.3, seed=9) as proxy:
        counts = await soak(s3_environ, proxy.endpoint, cache, await make_plan(), model_folder, kills=8, seed=6)
    assert counts["killed"] == 8
