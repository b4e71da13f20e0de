"""Compare plnt's pull with aioboto3's own download on one S3 server: ``python benchmarks/pull.py [MIB]``.

Both run here and now, in turn, against the same server and disk: only the ratio means something elsewhere. plnt's
pull includes SHA-256 of every byte, fsync and the published tree; the peer's is followed by one SHA-256 pass.
"""

import asyncio
import hashlib
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import aioboto3

sys.path.insert(0, str(Path(__file__).parent.parent))

from plnt.clients.weights.cache import Cache
from plnt.clients.weights.pull import Pull, PullSettings
from plnt.clients.weights.resolve import resolve_plan
from plnt.clients.weights.s3 import S3Sources
from plnt.clients.weights.throttle import Throttle
from plnt.model.pull_plan import PullPlan
from plnt.model.storage_uri import BucketUri, Scheme
from plnt.model.workflow_run import Quantization, Runtime
from plnt.sandbox.model_files import ModelFolder, write_model
from tests.fakes.object_store import running_object_store

BUCKET, PREFIX = "models", "bench"
ROUNDS = 3
CONNECTIONS = 8


async def pull_with_plnt(plan: PullPlan, sources: S3Sources, folder: Path) -> None:
    cache = Cache(folder)
    cache.prepare()
    await Pull(PullSettings(cache, sources.open, Throttle(None), CONNECTIONS)).run(cache.write_plan(plan))


async def pull_with_aioboto3(plan: PullPlan, session: aioboto3.Session, folder: Path) -> None:
    await asyncio.to_thread(folder.mkdir)
    async with session.client("s3") as client:
        await asyncio.gather(
            *(client.download_file(BUCKET, f"{PREFIX}/{file.path}", str(folder / file.path)) for file in plan.files)
        )
    for file in plan.files:
        await asyncio.to_thread(hash_and_sync, folder / file.path)


def hash_and_sync(path: Path) -> None:
    with path.open("rb") as file:
        hashlib.file_digest(file, "sha256")
        os.fsync(file.fileno())


async def measure(run: Callable[[Path], Awaitable[None]]) -> tuple[float, float]:
    """Give wall and CPU seconds."""
    with tempfile.TemporaryDirectory() as folder:
        began, used = time.monotonic(), time.process_time()
        await run(Path(folder) / "out")
        return time.monotonic() - began, time.process_time() - used


async def main() -> None:
    mib = int(sys.argv[1]) if len(sys.argv) > 1 else 256
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        await asyncio.to_thread(write_model, root / "model", ModelFolder(total_bytes=mib << 20, shards=4))
        async with running_object_store(root) as store:
            os.environ.update(store.environ())
            await store.seed(BUCKET, PREFIX, root / "model")
            sources, session = S3Sources(), aioboto3.Session()
            async with sources.open(BucketUri(scheme=Scheme.S3, bucket=BUCKET, path=PREFIX)) as source:
                plan = await resolve_plan(source, Runtime.VLLM, Quantization.FP16)
            runs: dict[str, Callable[[Path], Awaitable[None]]] = {
                "plnt": lambda folder: pull_with_plnt(plan, sources, folder),
                "aioboto3": lambda folder: pull_with_aioboto3(plan, session, folder),
            }
            times: dict[str, list[tuple[float, float]]] = {name: [] for name in runs}
            for _ in range(ROUNDS):
                for peer, run in runs.items():
                    times[peer].append(await measure(run))
    wall = {name: statistics.median(pair[0] for pair in pairs) for name, pairs in times.items()}
    cpu = {name: statistics.median(pair[1] for pair in pairs) for name, pairs in times.items()}
    report = {
        "mib": mib,
        **{f"{name}_mib_per_second": round(mib / seconds) for name, seconds in wall.items()},
        **{f"{name}_cpu_seconds": round(seconds, 2) for name, seconds in cpu.items()},
        "plnt_to_aioboto3": round(wall["aioboto3"] / wall["plnt"], 2),
    }
    print(json.dumps(report))


if __name__ == "__main__":
    asyncio.run(main())
