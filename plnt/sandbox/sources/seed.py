"""Fills the further sources with model folders, as their own tools would."""

import gzip
import hashlib
import io
import json
import tarfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote

import aiohttp

from plnt.errors import PermanentError

MANIFEST = "application/vnd.oci.image.manifest.v1+json"
INDEX = "application/vnd.oci.image.index.v1+json"
IMAGE_CONFIG = "application/vnd.oci.image.config.v1+json"
IMAGE_LAYER = "application/vnd.oci.image.layer.v1.tar+gzip"
MODEL_MANIFEST = "application/vnd.cncf.model.manifest.v1+json"
MODEL_CONFIG = "application/vnd.cncf.model.config.v1+json"
EMPTY = "application/vnd.oci.empty.v1+json"
TITLE, FILE_PATH = "org.opencontainers.image.title", "org.cncf.model.filepath"


class SeedRefused(PermanentError):
    """A server did not take what it was to hold."""


async def seed_gs(endpoint: str, bucket: str, prefix: str, folder: Path) -> None:
    """Upload a folder's files under ``gs://BUCKET/PREFIX``."""
    async with aiohttp.ClientSession() as session:
        async with session.post(f"{endpoint}/storage/v1/b", json={"name": bucket}) as answer:
            _check(answer, {200, 409})
        for path in list_files(folder):
            key = quote(f"{prefix}/{path.relative_to(folder).as_posix()}", safe="")
            url = f"{endpoint}/upload/storage/v1/b/{bucket}/o?uploadType=media&name={key}"
            headers = {"Content-Type": "application/octet-stream"}
            async with session.post(url, data=io.BytesIO(path.read_bytes()), headers=headers) as answer:
                _check(answer, {200})


@dataclass(frozen=True, slots=True)
class Blob:
    """A layer or configuration to push."""

    data: bytes
    kind: str
    notes: Mapping[str, str] = field(default_factory=dict)

    @property
    def descriptor(self) -> dict[str, Any]:
        """The manifest's entry."""
        digest = f"sha256:{hashlib.sha256(self.data).hexdigest()}"
        notes = {"annotations": dict(self.notes)} if self.notes else {}
        return {"mediaType": self.kind, "digest": digest, "size": len(self.data), **notes}


class Pusher:
    """Pushes to one repository of a registry."""

    def __init__(self, registry: str, name: str, headers: Mapping[str, str] | None = None) -> None:
        self._base = f"{registry}/v2/{name}"
        self._headers = dict(headers or {})

    async def push(self, tag: str, config: Blob, layers: Sequence[Blob], artifact: str = "") -> str:
        """Push an artifact or image and give its digest."""
        async with aiohttp.ClientSession(headers=self._headers) as session:
            for blob in (config, *layers):
                await self._push_blob(session, blob)
            kind = {"artifactType": artifact} if artifact else {}
            manifest = {
                "schemaVersion": 2,
                "mediaType": MANIFEST,
                **kind,
                "config": config.descriptor,
                "layers": [layer.descriptor for layer in layers],
            }
            return await self._put(session, tag, MANIFEST, manifest)

    async def push_index(self, tag: str, manifests: Sequence[Mapping[str, Any]]) -> str:
        """Push an index over manifests that are there and give its digest."""
        async with aiohttp.ClientSession(headers=self._headers) as session:
            index = {"schemaVersion": 2, "mediaType": INDEX, "manifests": list(manifests)}
            return await self._put(session, tag, INDEX, index)

    async def _put(self, session: aiohttp.ClientSession, tag: str, kind: str, document: Mapping[str, Any]) -> str:
        body = json.dumps(document).encode()
        async with session.put(f"{self._base}/manifests/{tag}", data=body, headers={"Content-Type": kind}) as answer:
            _check(answer, {201})
        return f"sha256:{hashlib.sha256(body).hexdigest()}"

    async def _push_blob(self, session: aiohttp.ClientSession, blob: Blob) -> None:
        async with session.post(f"{self._base}/blobs/uploads/") as answer:
            _check(answer, {202})
            place = answer.headers["Location"]
        mark = "&" if "?" in place else "?"
        url = f"{place}{mark}digest={blob.descriptor['digest']}"
        headers = {"Content-Type": "application/octet-stream"}
        async with session.put(url, data=io.BytesIO(blob.data), headers=headers) as answer:
            _check(answer, {201})


async def push_modelpack(registry: str, name: str, tag: str, folder: Path) -> str:
    """Push a folder as a ModelPack artifact, a layer per file, and give its digest."""
    layers = []
    for path in list_files(folder):
        role = "weight" if path.suffix == ".safetensors" else "weight.config"
        notes = {FILE_PATH: path.relative_to(folder).as_posix()}
        layers.append(Blob(path.read_bytes(), f"application/vnd.cncf.model.{role}.v1.raw", notes))
    return await Pusher(registry, name).push(tag, Blob(b"{}", MODEL_CONFIG), layers, MODEL_MANIFEST)


async def push_files(registry: str, name: str, tag: str, folder: Path) -> str:
    """Push a folder as an artifact of titled files, as ORAS does, and give its digest."""
    layers = [
        Blob(path.read_bytes(), "application/octet-stream", {TITLE: path.relative_to(folder).as_posix()})
        for path in list_files(folder)
    ]
    return await Pusher(registry, name).push(tag, Blob(b"{}", EMPTY), layers, "application/vnd.example.model")


async def push_modelcar(registry: str, name: str, tag: str, folder: Path) -> str:
    """Push a folder as an image with the model in ``/models``, configuration and weights in a layer each."""
    files = list_files(folder)
    small = [path for path in files if path.suffix != ".safetensors"]
    parts = (small, [path for path in files if path not in small])
    layers = [
        Blob(pack({f"models/{path.relative_to(folder).as_posix()}": path.read_bytes() for path in part}), IMAGE_LAYER)
        for part in parts
    ]
    config = json.dumps({"architecture": "amd64", "os": "linux", "rootfs": {"type": "layers", "diff_ids": []}})
    return await Pusher(registry, name).push(tag, Blob(config.encode(), IMAGE_CONFIG), layers)


def pack(files: Mapping[str, bytes]) -> bytes:
    """Give a compressed archive of ``files``."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        for name, data in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return gzip.compress(out.getvalue(), 1, mtime=0)


def list_files(folder: Path) -> list[Path]:
    """Give a folder's files in order."""
    return sorted(path for path in folder.rglob("*") if path.is_file())


def _check(answer: aiohttp.ClientResponse, wanted: set[int]) -> None:
    if answer.status not in wanted:
        raise SeedRefused(f"{answer.method} {answer.url.path}: HTTP {answer.status}")
