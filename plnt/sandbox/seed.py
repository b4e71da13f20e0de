"""Fills the sandbox's S3 server with model folders, as a user of a real one would have done."""

import asyncio
import tempfile
from pathlib import Path
from typing import Any

import aioboto3
from aiobotocore.config import AioConfig
from botocore.exceptions import BotoCoreError, ClientError

from plnt.sandbox.backing import S3_ACCESS_KEY, S3_REGION, S3_SECRET_KEY
from plnt.sandbox.model_files import ModelFolder, write_model

EXAMPLE_BUCKET, EXAMPLE_PREFIX = "plnt-models", "llama-3.1-70b/fp16"
START_SECONDS = 60.0
"""Longest wait for a store that starts; a fresh one takes 4 to 6 s."""
_PAUSE_SECONDS = 0.3
_UPLOADS = 4

# Retries are this module's own: the client's would hide for seconds that the store is not there yet.
# No proxies: the store is on loopback, whatever the shell says.
_CONFIG = AioConfig(
    retries={"max_attempts": 0}, connect_timeout=2, read_timeout=30, proxies={}, s3={"addressing_style": "path"}
)


async def seed_example(endpoint: str, model: ModelFolder | None = None) -> None:
    """Seed ``s3://plnt-models/llama-3.1-70b/fp16``, the folder of the example."""
    await seed_model(endpoint, EXAMPLE_BUCKET, EXAMPLE_PREFIX, model)


async def seed_model(endpoint: str, bucket: str, prefix: str, model: ModelFolder | None = None) -> None:
    """Make a model folder and upload it."""
    with tempfile.TemporaryDirectory(prefix="plnt-model-") as name:
        folder = Path(name)
        await asyncio.to_thread(write_model, folder, model)
        await seed(endpoint, bucket, prefix, folder)


async def seed(
    endpoint: str,
    bucket: str,
    prefix: str,
    folder: Path,
    *,
    access_key: str = S3_ACCESS_KEY,
    secret_key: str = S3_SECRET_KEY,
) -> None:
    """Upload every file of ``folder`` under ``prefix``, each in one request with its SHA-256.

    Raises:
        TimeoutError: the store did not take them within `START_SECONDS` of trying.
    """
    paths = await asyncio.to_thread(_list_files, folder)
    async with (
        asyncio.timeout(START_SECONDS),
        aioboto3.Session().client(
            "s3",
            endpoint_url=endpoint,
            aws_access_key_id=access_key,
            aws_secret_access_key=secret_key,
            region_name=S3_REGION,
            config=_CONFIG,
        ) as client,
    ):
        await _insist(client, "create_bucket", Bucket=bucket)
        gate = asyncio.Semaphore(_UPLOADS)

        async def upload(path: Path) -> None:
            async with gate:
                body = await asyncio.to_thread(path.read_bytes)
                key = f"{prefix}/{path.relative_to(folder).as_posix()}"
                await _insist(client, "put_object", Bucket=bucket, Key=key, Body=body, ChecksumAlgorithm="SHA256")

        async with asyncio.TaskGroup() as group:
            for path in paths:
                group.create_task(upload(path))


def _list_files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())


async def _insist(client: Any, call: str, **arguments: Any) -> None:
    """Repeat a call until the store takes it; a bucket that is there already is as good as made."""
    while True:
        try:
            await getattr(client, call)(**arguments)
        except (ClientError, BotoCoreError) as error:
            code = error.response["Error"]["Code"] if isinstance(error, ClientError) else ""
            if code in {"BucketAlreadyOwnedByYou", "BucketAlreadyExists"}:
                return
            if code in {"InvalidBucketName", "NoSuchKey", "InvalidRequest"}:
                raise
            await asyncio.sleep(_PAUSE_SECONDS)
        else:
            return
