"""Manifests of registries: which layers hold a model, and how.

Three families are read: ModelPack artifacts (the CNCF model format), artifacts whose layers are files with a title
(as ORAS writes them), and images with the model in the folder ``/models`` (modelcars).
"""

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from plnt.errors import SpecInvalid
from plnt.model.message import Message

MAX_MANIFEST_BYTES = 4 << 20
"""Largest manifest that registries have to take."""
MAX_LAYERS = 10_000
MAX_ARCHIVES = 127
"""Most layers of an image that container runtimes can stack."""
IMAGE_FOLDER = "models/"
"""Folder of an image that holds the model, as KServe's modelcars have it."""
ACCEPT = (
    "application/vnd.oci.image.manifest.v1+json, application/vnd.oci.image.index.v1+json, "
    "application/vnd.docker.distribution.manifest.v2+json, application/vnd.docker.distribution.manifest.list.v2+json"
)
TITLE = "org.opencontainers.image.title"
_FILE_PATHS = ("org.cncf.model.filepath", "org.cnai.model.filepath", TITLE)
_UNPACK = "io.deis.oras.content.unpack"
_MODEL_LAYER = re.compile(
    r"application/vnd\.(?:cncf|cnai)\.model\.(?P<role>[a-z]+(?:\.config)?)\.v\d+\.(?P<form>raw|tar(?:\+[a-z]+)?)"
)
_MODEL_ROLES = frozenset({"weight", "weight.config"})
"""Layers of documents, code and data sets stay at the registry."""
_IMAGE_LAYERS = {
    "application/vnd.oci.image.layer.v1.tar": "tar",
    "application/vnd.oci.image.layer.v1.tar+gzip": "tar+gzip",
    "application/vnd.docker.image.rootfs.diff.tar.gzip": "tar+gzip",
    "application/vnd.docker.image.rootfs.diff.tar": "tar",
}
_IMAGE_CONFIGS = frozenset(
    {"application/vnd.oci.image.config.v1+json", "application/vnd.docker.container.image.v1+json"}
)
_FORMS = frozenset({"raw", "tar", "tar+gzip"})
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")


class Layer(Message):
    """A blob that is a file, or an archive of files."""

    digest: str
    """``sha256:HEX``."""
    size: int
    path: str = ""
    """Name of the file; empty for an archive."""
    unpack: str = ""
    """``tar`` or ``tar+gzip`` for an archive."""
    strip: str = ""
    """Folder of the archive that holds the model."""


class Manifest(Message):
    """What an artifact holds."""

    layers: list[Layer]


class Reference(Message):
    """An entry of an index that leads to the manifest to take."""

    digest: str
    size: int


def parse_manifest(data: bytes, where: str) -> Manifest | Reference:
    """Parse a manifest, or choose one from an index.

    Raises:
        SpecInvalid: it is none, or holds nothing that plnt can take.
    """
    try:
        document = json.loads(data)
    except (ValueError, RecursionError):
        document = None
    if not isinstance(document, dict):
        raise SpecInvalid(f"{where}: the manifest is no JSON object: push the artifact again")
    if isinstance(document.get("manifests"), list):
        return _choose(document["manifests"], where)
    entries = document.get("layers")
    if not isinstance(entries, list) or not entries or len(entries) > MAX_LAYERS:
        raise SpecInvalid(f"{where}: the manifest lists no layers, or more than {MAX_LAYERS}: push the artifact again")
    layers = [layer for entry in entries for layer in _read_layer(entry, _is_image(document), where)]
    if not layers:
        raise SpecInvalid(f"{where} holds no layer of weights: push the model as ModelPack, files or modelcar")
    if sum(1 for layer in layers if layer.unpack) > MAX_ARCHIVES:
        raise SpecInvalid(f"{where} has more than {MAX_ARCHIVES} archives: push the files as layers of their own")
    return Manifest(layers=layers)


def _choose(entries: list[Any], where: str) -> Reference:
    candidates = [entry for entry in entries if isinstance(entry, dict) and not _is_attestation(entry)]
    for wanted in (("linux", "amd64"), ("linux", None), (None, None)):
        for entry in candidates:
            platform = entry.get("platform") or {}
            if all(part in {None, platform.get(key)} for key, part in zip(("os", "architecture"), wanted, strict=True)):
                return Reference(digest=_digest(entry, where), size=_size(entry, where))
    raise SpecInvalid(f"{where}: the index lists no image or model: push it again")


def _is_attestation(entry: Mapping[str, Any]) -> bool:
    platform = entry.get("platform")
    return isinstance(platform, dict) and platform.get("os") == "unknown"


def _is_image(document: Mapping[str, Any]) -> bool:
    config = document.get("config")
    return isinstance(config, dict) and config.get("mediaType") in _IMAGE_CONFIGS and "artifactType" not in document


def _read_layer(entry: Any, is_image: bool, where: str) -> Iterator[Layer]:  # noqa: FBT001 - one caller
    if not isinstance(entry, dict):
        raise SpecInvalid(f"{where}: a layer of the manifest is no object: push the artifact again")
    kind, notes = str(entry.get("mediaType", "")), entry.get("annotations")
    notes = notes if isinstance(notes, dict) else {}
    digest, size = _digest(entry, where), _size(entry, where)
    model = _MODEL_LAYER.fullmatch(kind)
    if model is not None and model["role"] not in _MODEL_ROLES:
        return
    if is_image and kind not in _IMAGE_LAYERS:
        raise SpecInvalid(f"{where}: layers of type {kind} cannot be read: build the image with tar or gzip layers")
    if is_image:
        yield Layer(digest=digest, size=size, unpack=_IMAGE_LAYERS[kind], strip=IMAGE_FOLDER)
        return
    form = model["form"] if model is not None else _form_of(kind, notes)
    if form not in _FORMS:
        raise SpecInvalid(f"{where}: layers packed as {form} cannot be read: push them as raw, tar or tar+gzip")
    if form != "raw":
        yield Layer(digest=digest, size=size, unpack=form)
        return
    path = next((str(notes[key]) for key in _FILE_PATHS if notes.get(key)), "")
    if not path:
        raise SpecInvalid(f"{where}: a layer of type {kind} has no name: annotate it with {TITLE}")
    yield Layer(digest=digest, size=size, path=path)


def _form_of(kind: str, notes: Mapping[str, Any]) -> str:
    if kind in _IMAGE_LAYERS and (TITLE not in notes or notes.get(_UNPACK) == "true"):
        return _IMAGE_LAYERS[kind]
    return "raw"


def _digest(entry: Mapping[str, Any], where: str) -> str:
    digest = str(entry.get("digest", ""))
    if not _DIGEST.fullmatch(digest):
        raise SpecInvalid(f"{where}: the manifest names a layer without a SHA-256 digest: push the artifact again")
    return digest


def _size(entry: Mapping[str, Any], where: str) -> int:
    size = entry.get("size")
    if not isinstance(size, int) or isinstance(size, bool) or size < 0:
        raise SpecInvalid(f"{where}: the manifest names a layer without a size: push the artifact again")
    return size
