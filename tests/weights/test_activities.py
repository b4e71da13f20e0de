"""The pool's two activities on a real S3 server."""

import asyncio
import dataclasses
from collections.abc import AsyncIterator, Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from temporalio.testing import ActivityEnvironment

from activities.weights import open_pool
from plnt.model.desired import Ref
from plnt.model.messages import PlanRef, PullWeights, ResolveSource, Tree
from plnt.model.pull_progress import PullProgress
from plnt.model.workflow_run import Quantization, Runtime
from plnt.settings import PoolSettings, SettingsInvalid
from plnt.steps import COLLECT_CACHE, PULL_WEIGHTS, RESOLVE_SOURCE
from tests.fakes.object_store import ObjectStore

REF = Ref(namespace="default", name="llama")
MIB = 1 << 20
MODEL_FILES = {
    "config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json", "model.safetensors.index.json",
    "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors",
}  # fmt: skip


def make_request(uri: str) -> ResolveSource:
    return ResolveSource(ref=REF, runtime=Runtime.VLLM, storage_uri=uri, quantization=Quantization.FP16)


def make_environment() -> ActivityEnvironment:
    """Heartbeats every 0.2 s: a fifth of the timeout."""
    environment = ActivityEnvironment()
    environment.info = dataclasses.replace(environment.info, heartbeat_timeout=timedelta(seconds=1))
    return environment


@pytest.fixture
async def pool(s3_environ: ObjectStore, tmp_path: Path) -> AsyncIterator[list[Callable[..., Any]]]:
    settings = PoolSettings.read(
        {"PLNT_CACHE_DIR": str(tmp_path / "cache"), "PLNT_PULL_BYTES_PER_SECOND": str(16 * MIB)}
    )
    async with open_pool(settings) as activities:
        yield list(activities)


async def test_plan_and_pull_give_the_same_when_run_twice(
    pool: list[Callable[..., Any]], seeded: str, tmp_path: Path
) -> None:
    resolve, pull, *_ = pool
    environment = make_environment()
    details: list[PullProgress] = []
    environment.on_heartbeat = lambda *words: details.extend(words)
    plans: list[PlanRef] = [await environment.run(resolve, make_request(seeded)) for _ in range(2)]
    assert plans[0] == plans[1]
    request = PullWeights(ref=REF, storage_uri=seeded, plan=plans[0])
    trees: list[Tree] = [await environment.run(pull, request) for _ in range(2)]
    assert trees[0] == trees[1]
    names = {path.name for path in (tmp_path / "cache" / "trees" / trees[0].digest).iterdir()}
    assert names - {".plnt-manifest.json"} == MODEL_FILES
    assert any(0 < word.bytes_done <= word.bytes_total == trees[0].bytes for word in details)


async def test_cancelled_pull_ends_and_the_next_one_finishes(pool: list[Callable[..., Any]], seeded: str) -> None:
    resolve, pull, *_ = pool
    plan: PlanRef = await ActivityEnvironment().run(resolve, make_request(seeded))
    request = PullWeights(ref=REF, storage_uri=seeded, plan=plan)
    environment = make_environment()
    moved = asyncio.Event()
    environment.on_heartbeat = lambda word: moved.set() if word.bytes_done else None
    running = asyncio.create_task(environment.run(pull, request))
    await asyncio.wait_for(moved.wait(), 60)
    environment.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(running, 60)
    assert (await ActivityEnvironment().run(pull, request)).bytes == plan.bytes


async def test_pool_implements_every_step_of_its_queue(pool: list[Callable[..., Any]]) -> None:
    names = {activity.__temporal_activity_definition.name for activity in pool}
    assert names == {RESOLVE_SOURCE.name, PULL_WEIGHTS.name, COLLECT_CACHE.name}


async def test_cache_of_another_layout_stops_the_pool_with_the_setting_named(tmp_path: Path) -> None:
    (tmp_path / "VERSION").write_text("99")
    with pytest.raises(SettingsInvalid, match="PLNT_CACHE_DIR"):
        async with open_pool(PoolSettings.read({"PLNT_CACHE_DIR": str(tmp_path)})):
            pass
