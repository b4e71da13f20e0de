"""What one contestant does in a process of its own: ``contestants.py NAME FOLDER URI``; prints what it took.

Time counts from after the imports and, for plnt, after its client of the store was made: the weights pool is a process
that stays, and loads what a real one has loaded. ``started`` is the time with the process's start. Runs in plnt's
environment for plnt, in the peers' own for the others.
"""

import asyncio
import hashlib
import json
import os
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

HASHERS = 2


def hash_file(path: Path) -> str:
    digest, view = hashlib.sha256(), memoryview(bytearray(1 << 20))
    with path.open("rb", buffering=0) as file:
        while count := file.readinto(view):
            digest.update(view[:count])
        os.fsync(file.fileno())
    return digest.hexdigest()


def hash_folder(folder: Path) -> list[str]:
    """Hash every file and have it on the volume; links count as files."""
    paths = sorted((path for path in folder.rglob("*") if path.is_file()), key=lambda path: -path.stat().st_size)
    with ThreadPoolExecutor(HASHERS) as pool:
        return sorted(pool.map(hash_file, paths))


class Clock:
    """What was taken since a moment."""

    def __init__(self) -> None:
        self.began, self.cpu = time.monotonic(), time.process_time()

    def read(self) -> dict[str, float]:
        return {"seconds": time.monotonic() - self.began, "cpu": time.process_time() - self.cpu}


def say(taken: dict[str, float], **facts: Any) -> None:
    print(json.dumps({**taken, "started": _count_age(), **facts}), flush=True)


def say_unverified(clock: Clock, folder: Path) -> None:
    """Say what a client took that does not hash, and what it takes with a pass of SHA-256 and fsync after it."""
    taken = clock.read()
    digests = hash_folder(folder)
    say(taken, digests=digests, verified=clock.read()["seconds"])


def _count_age() -> float:
    """Give the seconds since this process was started."""
    ticks = int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19])
    return time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")


async def run_plnt(folder: Path, uri: str) -> None:
    import activities.__main__ as worker  # what a worker has in memory
    from plnt.clients.weights.cache import Cache
    from plnt.clients.weights.pull import Pull, PullSettings
    from plnt.clients.weights.resolve import resolve_plan
    from plnt.clients.weights.sources import Sources
    from plnt.clients.weights.throttle import Throttle
    from plnt.model.storage_uri import parse_storage_uri
    from plnt.model.workflow_run import Quantization, Runtime
    from plnt.settings import PoolSettings

    assert worker
    settings = PoolSettings.read(os.environ)
    sources = Sources(settings)
    cache = Cache(folder)
    cache.prepare()
    shared = PullSettings(
        cache, sources.open, Throttle(None), settings.pull_connections, private_hosts=settings.private_hosts
    )
    storage = parse_storage_uri(uri)
    async with sources.open(storage):
        pass
    clock = Clock()
    async with sources.open(storage) as source:
        plan = await resolve_plan(source, Runtime.VLLM, Quantization.FP16)
    pull = Pull(shared)
    watching = asyncio.create_task(watch(pull)) if os.environ.get("WATCH") else None
    tree = await pull.run(cache.write_plan(plan))
    if watching is not None:
        watching.cancel()
    taken = clock.read()
    manifest = json.loads((cache.root / "trees" / tree.digest / ".plnt-manifest.json").read_text())
    say(taken, digests=sorted(file["sha256"] for file in manifest["files"]), reused=pull.read_progress().bytes_reused)


async def watch(pull: Any) -> None:
    while True:
        print(pull.read_progress().bytes_done, flush=True)
        await asyncio.sleep(0.01)


async def run_aioboto3(folder: Path, uri: str) -> None:
    import aioboto3

    bucket, prefix = split(uri)
    session = aioboto3.Session()
    clock = Clock()
    async with session.client("s3") as client:
        listed = await client.list_objects_v2(Bucket=bucket, Prefix=prefix)
        keys = [entry["Key"] for entry in listed["Contents"]]
        await asyncio.gather(
            *(client.download_file(bucket, key, str(folder / key.removeprefix(prefix))) for key in keys)
        )
    digests = hash_folder(folder)
    say(clock.read(), digests=digests)


async def run_obstore(folder: Path, uri: str) -> None:
    import obstore
    from obstore.store import S3Store

    bucket, prefix = split(uri)
    endpoint = os.environ["AWS_ENDPOINT_URL_S3"]
    options = {"allow_http": True, "allow_invalid_certificates": True}
    store = S3Store(bucket, endpoint=endpoint, client_options=options, virtual_hosted_style_request=False)
    clock = Clock()

    async def fetch(path: str) -> None:
        answer = await obstore.get_async(store, path)
        with (folder / path.removeprefix(prefix)).open("wb", buffering=0) as file:
            async for chunk in answer.stream(min_chunk_size=4 << 20):
                await asyncio.to_thread(file.write, chunk)

    found = obstore.list(store, prefix=prefix).collect()
    await asyncio.gather(*(fetch(entry["path"]) for entry in found))
    digests = hash_folder(folder)
    say(clock.read(), digests=digests)


async def run_gcsfs(folder: Path, uri: str) -> None:
    os.environ["GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT"] = "false"
    from gcsfs import GCSFileSystem

    store = GCSFileSystem(token="anon", endpoint_url=os.environ["STORAGE_EMULATOR_HOST"])
    clock = Clock()
    await asyncio.to_thread(store.get, uri.removeprefix("gs://") + "/", f"{folder}/", recursive=True)
    say_unverified(clock, folder)


async def run_oras(folder: Path, uri: str) -> None:
    from oras.client import OrasClient

    target = uri.removeprefix("oci://")
    client = OrasClient(hostname=target.partition("/")[0], insecure=True)
    clock = Clock()
    client.pull(target=target, outdir=str(folder))
    say_unverified(clock, folder)


async def run_hub(folder: Path, uri: str) -> None:
    os.environ.update(HF_HUB_DISABLE_XET="1", HF_HUB_DISABLE_TELEMETRY="1", HF_HUB_DISABLE_PROGRESS_BARS="1")
    from huggingface_hub import snapshot_download

    repo = "/".join(urlsplit(uri).netloc.split("/") + urlsplit(uri).path.strip("/").split("/"))
    clock = Clock()
    found = await asyncio.to_thread(snapshot_download, repo, cache_dir=folder)
    say_unverified(clock, Path(found))


async def run_hash(folder: Path, _: str) -> None:
    clock = Clock()
    digests = hash_folder(folder)
    say(clock.read(), digests=digests)


def split(uri: str) -> tuple[str, str]:
    bucket, _, prefix = uri.removeprefix("s3://").partition("/")
    return bucket, prefix + "/"


CONTESTANTS = {
    "plnt": run_plnt,
    "aioboto3": run_aioboto3,
    "obstore": run_obstore,
    "gcsfs": run_gcsfs,
    "oras-py": run_oras,
    "snapshot_download": run_hub,
    "hash": run_hash,
}


def main() -> None:
    name, folder, uri = sys.argv[1], Path(sys.argv[2]), sys.argv[3]
    asyncio.run(CONTESTANTS[name](folder, uri))


if __name__ == "__main__":
    main()
