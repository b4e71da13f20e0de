"""Weights in registries: artifacts and images.

A layer that is a file comes as any other file does. A layer that is an archive is pulled and verified as one blob, and
unpacked when it is whole; before that, its beginning is looked at for the model's configuration.
"""

import asyncio
import io
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

from plnt.clients.weights.credentials import Credentials
from plnt.clients.weights.host_rule import HostRule
from plnt.clients.weights.overlay import Entry, Removal, covers, open_archive, walk
from plnt.clients.weights.redirect import trusted_hosts
from plnt.clients.weights.registry import Registry
from plnt.clients.weights.source import Link, Packed
from plnt.clients.weights.tar_reader import ArchiveCut, ArchiveFault, TarReader
from plnt.clients.weights.web import open_web
from plnt.errors import SpecInvalid, WeightsNotFound
from plnt.model.oci_manifest import Layer, Manifest, Reference, parse_manifest
from plnt.model.pull_plan import PlannedFile
from plnt.model.storage_uri import FIELD, OciUri
from plnt.model.weight_files import MAX_SIDE_FILE_BYTES

SCAN_BYTES = 16 << 20
"""How much of each archive is looked at before it is pulled; it lies in memory meanwhile."""
MAX_SEEN_BYTES = 16 << 20
"""Largest configuration or index that is read from an archive before it is pulled."""
MAX_INDEXES = 4
"""Indexes that may lead to each other."""


class OciSource:
    """One artifact."""

    ca_bundle: str | None = None

    def __init__(self, registry: Registry, uri: OciUri, trusted: frozenset[str]) -> None:
        self._registry, self._uri = registry, uri
        self._files: dict[str, PlannedFile] = {}
        self._seen: dict[str, bytes] = {}
        self.packed: Packed | None = None
        self.trusted_hosts = trusted

    @property
    def where(self) -> str:
        """URI by digest, once the files were listed."""
        return str(self._uri)

    async def list_files(self) -> dict[str, int]:
        """Pin the reference to its digest and give path -> size of the files, those seen in archives included.

        Raises:
            WeightsNotFound, AccessDenied: there is no such artifact, or it is not for these credentials.
            SpecInvalid: plnt cannot take what it holds.
        """
        manifest = await self._read_manifest()
        archives = [layer for layer in manifest.layers if layer.unpack]
        for layer in manifest.layers:
            if layer.path in self._files:
                raise SpecInvalid(f"{FIELD}: {self.where} has two layers of the name {layer.path!r}: push it again")
            if not layer.unpack:
                self._files[layer.path] = _plan(layer, layer.path)
        if archives:
            self.packed = await self._look_into(archives)
        packed = self.packed.sizes if self.packed is not None else {}
        return {**{path: file.size for path, file in self._files.items()}, **packed}

    async def _read_manifest(self) -> Manifest:
        reference = self._uri.digest or self._uri.tag or "latest"
        body, digest = await self._registry.read_manifest(reference, self.where)
        self._uri = self._uri.model_copy(update={"tag": "", "digest": digest})
        for _ in range(MAX_INDEXES):
            found = parse_manifest(body, self.where)
            if not isinstance(found, Reference):
                return found
            body, _ = await self._registry.read_manifest(found.digest, self.where)
        raise SpecInvalid(f"{FIELD}: {self.where} is an index of indexes: push it again")

    async def _look_into(self, layers: list[Layer]) -> Packed:
        names = [f"layer-{number}.{layer.unpack.replace('+gzip', '.gz')}" for number, layer in enumerate(layers)]
        plans = [_plan(layer, name) for layer, name in zip(layers, names, strict=True)]
        sizes: dict[str, int] = {}
        is_complete = True
        for plan in plans:
            limit = min(SCAN_BYTES, plan.size)
            head = await self._registry.read_blob(f"sha256:{plan.sha256}", limit, self.where, cuts=plan.size > limit)
            is_complete &= await asyncio.to_thread(self._scan, head, plan, sizes, whole=plan.size <= limit)
        if "config.json" not in sizes and not is_complete:
            raise WeightsNotFound(
                f"{self.where} has no config.json in the first {SCAN_BYTES >> 20} MiB of an archive: copy it in a "
                f"layer of its own, before the weights"
            )
        return Packed(tuple(plans), sizes, is_complete)

    def _scan(self, head: bytes, plan: PlannedFile, sizes: dict[str, int], *, whole: bool) -> bool:
        """Apply what is seen of a layer to ``sizes``; true when that was all of it."""
        reader = open_archive(io.BytesIO(head), plan.unpack)
        try:
            for change in walk(reader, plan.strip):
                if isinstance(change, Removal):
                    for path in [path for path in sizes if covers(change, path)]:
                        del sizes[path]
                else:
                    self._note(change, reader, sizes)
        except ArchiveCut as fault:
            if whole:
                raise SpecInvalid(f"{self.where}: archive {plan.path} {fault}: push it again") from fault
            return False
        except ArchiveFault as fault:
            raise SpecInvalid(f"{self.where}: archive {plan.path} {fault}") from fault
        return True

    def _note(self, entry: Entry, reader: TarReader, sizes: dict[str, int]) -> None:
        sizes[entry.path] = entry.size
        if entry.path.endswith(".json") and entry.size <= MAX_SEEN_BYTES and "/" not in entry.path:
            parts = []
            while data := reader.read(1 << 18):
                parts.append(data)
            self._seen[entry.path] = b"".join(parts)

    async def pin_file(self, path: str) -> PlannedFile:
        """Give a file with its digest; what lies in an archive is proven with the archive."""
        if path in self._files:
            return self._files[path]
        assert self.packed is not None
        return PlannedFile(path=path, size=self.packed.sizes[path], validator="")

    async def read_file(self, file: PlannedFile) -> bytes:
        """Read a small file and check it.

        Raises:
            DigestMismatch: it is not what the manifest says.
        """
        if file.path not in self._files:
            if file.path not in self._seen:
                raise WeightsNotFound(f"{self.where}: {file.path} is not where it can be read before the pull")
            return self._seen[file.path]
        if file.size > MAX_SIDE_FILE_BYTES:
            raise SpecInvalid(f"{self.where}: {file.path} is longer than {MAX_SIDE_FILE_BYTES} bytes")
        return await self._registry.read_blob(f"sha256:{file.sha256}", file.size, f"{self.where}/{file.path}")

    async def make_link(self, file: PlannedFile) -> Link:
        """Give a link to the layer's blob."""
        return await self._registry.make_link(f"sha256:{file.sha256}")


def _plan(layer: Layer, path: str) -> PlannedFile:
    sha256 = layer.digest.removeprefix("sha256:")
    return PlannedFile(path=path, size=layer.size, validator="", sha256=sha256, unpack=layer.unpack, strip=layer.strip)


class OciSources:
    """Opens artifacts; ``mirrors`` are the operator's own URLs for registries, by host."""

    def __init__(self, mirrors: Mapping[str, str], private_hosts: tuple[str, ...]) -> None:
        self._mirrors, self._private_hosts = mirrors, private_hosts

    @asynccontextmanager
    async def open(self, uri: OciUri, credentials: Credentials | None) -> AsyncIterator[OciSource]:
        """Open an artifact."""
        mirror = self._mirrors.get(uri.host, "")
        trusted = trusted_hosts(mirror) if mirror else frozenset()
        login = credentials.read_login(uri.host, uri.name) if credentials is not None else None
        async with open_web(HostRule({*self._private_hosts, *trusted})) as web:
            yield OciSource(Registry(web, uri, login, mirror), uri, trusted)
