"""A real S3 server on loopback, and a proxy that counts what it serves."""

import asyncio
import json
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aioboto3

from plnt.sandbox.seed import seed

ACCESS_KEY, SECRET_KEY = "plnt", "plnt-secret"
STRANGER_KEY, STRANGER_SECRET = "stranger", "stranger-secret"
_PORTS = (
    "s3.port", "s3.port.grpc", "s3.port.iceberg", "s3.port.lance", "master.port", "master.port.grpc", "volume.port",
    "volume.port.grpc", "filer.port", "filer.port.grpc",
)  # fmt: skip


@dataclass(frozen=True)
class ObjectStore:
    """A running server."""

    endpoint: str
    plain_endpoint: str
    """Without TLS; the same where there is no other."""

    def environ(self, endpoint: str | None = None) -> dict[str, str]:
        """Give the standard variables that lead to it."""
        return {
            "AWS_ENDPOINT_URL_S3": endpoint or self.endpoint,
            "AWS_ACCESS_KEY_ID": ACCESS_KEY,
            "AWS_SECRET_ACCESS_KEY": SECRET_KEY,
            "AWS_REGION": "us-east-1",
        }

    async def seed(self, bucket: str, prefix: str, folder: Path) -> None:
        """Upload a folder."""
        await seed(self.endpoint, bucket, prefix, folder, access_key=ACCESS_KEY, secret_key=SECRET_KEY)

    async def put(self, bucket: str, key: str, body: bytes) -> None:
        """Upload one object."""
        async with self._client() as client:
            await client.put_object(Bucket=bucket, Key=key, Body=body)

    async def delete(self, bucket: str, key: str) -> None:
        """Remove one object."""
        async with self._client() as client:
            await client.delete_object(Bucket=bucket, Key=key)

    def _client(self) -> Any:
        return aioboto3.Session().client(
            "s3",
            endpoint_url=self.endpoint,
            aws_access_key_id=ACCESS_KEY,
            aws_secret_access_key=SECRET_KEY,
            region_name="us-east-1",
        )


@asynccontextmanager
async def running_object_store(folder: Path, tls: tuple[Path, Path] | None = None) -> AsyncIterator[ObjectStore]:
    """Run ``weed server -s3`` on free ports; ``tls`` are certificate and key of a further endpoint that has TLS."""
    config = folder / "s3.json"
    config.write_text(json.dumps(_identities()))
    ports = dict(zip(_PORTS, _free_ports(len(_PORTS)), strict=True))
    data = folder / "data"
    data.mkdir()
    command = [
        str(Path(sys.executable).with_name("weed")), "server", f"-dir={data}", "-ip=127.0.0.1", "-ip.bind=127.0.0.1",
        "-s3", "-filer", f"-s3.config={config}", "-master.telemetry=false", "-volume.max=100",
        "-master.volumeSizeLimitMB=64",
        *(f"-{flag}={port}" for flag, port in ports.items()),
    ]  # fmt: skip
    plain = endpoint = f"http://127.0.0.1:{ports['s3.port']}"
    if tls is not None:
        (secure,) = _free_ports(1)
        endpoint = f"https://127.0.0.1:{secure}"
        command += [f"-s3.port.https={secure}", f"-s3.cert.file={tls[0]}", f"-s3.key.file={tls[1]}"]
    with (folder / "weed.log").open("wb") as log:
        process = await asyncio.create_subprocess_exec(*command, stdout=log, stderr=log)
        try:
            yield ObjectStore(endpoint, plain)
        finally:
            process.kill()
            await process.wait()


def _identities() -> dict[str, Any]:
    actions = ["Admin", "Read", "Write", "List", "Tagging"]
    users = [("plnt", ACCESS_KEY, SECRET_KEY, actions), ("stranger", STRANGER_KEY, STRANGER_SECRET, ["Read:elsewhere"])]
    return {
        "identities": [
            {"name": name, "credentials": [{"accessKey": key, "secretKey": secret}], "actions": rights}
            for name, key, secret, rights in users
        ]
    }


def _free_ports(count: int) -> list[int]:
    sockets = [socket.socket() for _ in range(count)]
    for held in sockets:
        held.bind(("127.0.0.1", 0))
    ports = [held.getsockname()[1] for held in sockets]
    for held in sockets:
        held.close()
    return ports


class CountingProxy:
    """Counts the bytes that a server sends through it."""

    def __init__(self, url: str) -> None:
        self.served = 0
        self.endpoint = ""


@asynccontextmanager
async def counting_proxy(store: ObjectStore) -> AsyncIterator[CountingProxy]:
    """Stand between a client and the store."""
    port = int(store.endpoint.rpartition(":")[2])
    proxy = CountingProxy(store.endpoint)
    tasks: set[asyncio.Task[None]] = set()

    async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, count: bool) -> None:
        with suppress(ConnectionError):
            while data := await reader.read(1 << 16):
                proxy.served += len(data) if count else 0
                writer.write(data)
                await writer.drain()
        writer.close()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        upstream, downstream = await asyncio.open_connection("127.0.0.1", port)
        # What lies in this proxy's own buffers would count as served.
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 16)
        for task in (
            asyncio.create_task(pump(reader, downstream, count=False)),
            asyncio.create_task(pump(upstream, writer, count=True)),
        ):
            tasks.add(task)
            task.add_done_callback(tasks.discard)

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    proxy.endpoint = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield proxy
    finally:
        server.close()
        for task in list(tasks):
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
