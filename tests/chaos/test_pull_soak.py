"""Two hundred pulls killed at random moments, half of them from a source that spoils its answers."""

from pathlib import Path

import pytest

from plnt.clients.weights.cache import Cache
from plnt.clients.weights.resolve import resolve_plan
from plnt.clients.weights.s3 import S3Sources
from plnt.model.storage_uri import BucketUri, Scheme
from plnt.model.workflow_run import Quantization, Runtime
from plnt.sandbox.model_files import ModelFolder, write_model
from tests.fakes.object_store import running_object_store
from tests.fakes.pull_soak import soak
from tests.fakes.spoiling_proxy import Spoil, fault_proxy

KILLS = 100
"""Of each of the two sources."""


async def test_pulls_that_are_killed_all_the_time_end_with_the_very_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "s3").mkdir()
    model = tmp_path / "model"
    write_model(model, ModelFolder(total_bytes=24 << 20, shards=2))
    cache = Cache(tmp_path / "cache")
    cache.prepare()
    spoils = [Spoil.CUT, Spoil.SHORT, Spoil.STORM, Spoil.BUSY]
    async with running_object_store(tmp_path / "s3") as store:
        await store.seed("models", "soak", model)
        for key, value in store.environ().items():
            monkeypatch.setenv(key, value)
        async with S3Sources().open(BucketUri(scheme=Scheme.S3, bucket="models", path="soak")) as source:
            plan = await resolve_plan(source, Runtime.VLLM, Quantization.FP16)
        async with fault_proxy(store.endpoint, spoils, rate=0.2, seed=11) as proxy:
            for endpoint, seed in ((store.endpoint, 1), (proxy.endpoint, 2)):
                counts = await soak(store, endpoint, cache, plan, model, kills=KILLS, seed=seed)
                assert counts["killed"] == KILLS
