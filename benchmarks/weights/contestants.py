"""What one contestant does in a process of its own: ``contestants.py NAME FOLDER URI``; prints seconds and CPU seconds.

Time counts from after the imports: the weights pool is a process that stays. Runs in plnt's environment for plnt, in
the peers' own for the others. Everybody ends with the SHA-256 of every byte and the data on the volume.
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

HASHERS = 2


def hash_file(path: Path) -> str:
    digest, view = hashlib.sha256(), memoryview(bytearray(1 << 20))
    with path.open("rb", buffering=0) as file:
        while count := file.readinto(view):
            digest.update(view[:count])
        os.fsync(file.fileno())
    return digest.hexdigest()


def hash_folder(folder: Path) -> dict[str, str]:
    paths = sorted((path for path in folder.rglob("*") if path.is_file()), key=lambda path: -path.stat().st_size)
    with ThreadPoolExecutor(HASHERS) as pool:
        return {path.name: digest for path, digest in zip(paths, pool.map(hash_file, paths), strict=True)}


def say(began: tuple[float, float], **facts: Any) -> None:
    facts |= {"seconds": time.monotonic() - began[0], "cpu": time.process_time() - began[1]}
    print(json.dumps(facts), flush=True)


def start() -> tuple[float, float]:
    return time.monotonic(), time.process_time()


async def run_plnt(folder: Path, uri: str) -> None:
    from plnt.clients.weights.cache import Cache
    from plnt.clients.weights.pull import Pull, PullSettings
    from plnt.clients.weights.resolve import resolve_plan
    from plnt.clients.weights.sources import Sources
    from plnt.clients.weights.throttle import Throttle
    from plnt.model.storage_uri import parse_storage_uri
    from plnt.model.workflow_run import Quantization, Runtime
    from plnt.settings import PoolSettings

    settings = PoolSettings.read(os.environ)
    sources = Sources(settings)
    cache = Cache(folder)
    cache.prepare()
    began = start()
    async with sources.open(parse_storage_uri(uri)) as source:
        plan = await resolve_plan(source, Runtime.VLLM, Quantization.FP16)
    pull = Pull(PullSettings(cache, sources.open, Throttle(None), settings.pull_connections))
    watching = asyncio.create_task(watch(pull)) if os.environ.get("WATCH") else None
    tree = await pull.run(cache.write_plan(plan))
    if watching is not None:
        watching.cancel()
    said = pull.read_progress()
    manifest = json.loads((cache.root / "trees" / tree.digest / ".plnt-manifest.json").read_text())
    digests = {file["path"]: file["sha256"] for file in manifest["files"]}
    say(began, digests=digests, reused=said.bytes_reused)


async def watch(pull: Any) -> None:
    while True:
        print(pull.read_progress().bytes_done, flush=True)
        await asyncio.sleep(0.01)


async def run_aioboto3(folder: Path, uri: str) -> None:
    import aioboto3

    bucket, prefix = split(uri)
    session = aioboto3.Session()
    began = start()
    async with session.client("s3") as client:
        listed = await client.list_objects_v2(Bucket=bucket, Prefix=prefix)
        keys = [entry["Key"] for entry in listed["Contents"]]
        await asyncio.gather(
            *(client.download_file(bucket, key, str(folder / key.removeprefix(prefix))) for key in keys)
        )
    say(began, digests=hash_folder(folder))


async def run_obstore(folder: Path, uri: str) -> None:
    import obstore
    from obstore.store import S3Store

    bucket, prefix = split(uri)
    endpoint = os.environ["AWS_ENDPOINT_URL_S3"]
    store = S3Store(bucket, endpoint=endpoint, client_options={"allow_http": True}, virtual_hosted_style_request=False)
    began = start()

    async def fetch(path: str) -> None:
        answer = await obstore.get_async(store, path)
        with (folder / path.removeprefix(prefix)).open("wb", buffering=0) as file:
            async for chunk in answer.stream(min_chunk_size=4 << 20):
                await asyncio.to_thread(file.write, chunk)

    found = obstore.list(store, prefix=prefix).collect()
    await asyncio.gather(*(fetch(entry["path"]) for entry in found))
    say(began, digests=hash_folder(folder))


def split(uri: str) -> tuple[str, str]:
    bucket, _, prefix = uri.removeprefix("s3://").partition("/")
    return bucket, prefix + "/"


def main() -> None:
    name, folder, uri = sys.argv[1], Path(sys.argv[2]), sys.argv[3]
    if name == "hash":
        began = start()
        say(began, digests=hash_folder(folder))
        return
    asyncio.run({"plnt": run_plnt, "aioboto3": run_aioboto3, "obstore": run_obstore}[name](folder, uri))


if __name__ == "__main__":
    main()
