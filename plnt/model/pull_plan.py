"""A pull plan: the files of a source, pinned, so that retries, replicas and canary all get the same bytes."""

import hashlib
import json
from collections.abc import Iterable, Sequence

from plnt.errors import SpecInvalid
from plnt.model.file_choice import Globs
from plnt.model.file_name import find_collision, find_name_fault
from plnt.model.message import Message

MAX_FILES = 10_000
MAX_TOTAL_BYTES = 2 << 40
"""Most files and bytes of one model: a hostile listing must not fill the cache."""


class PlannedFile(Message):
    """One file, pinned to the content that it had when the plan was made."""

    path: str
    """Path below the model's folder."""
    size: int
    validator: str
    """Strong validator that the source answers with and takes in If-Match; for S3 the ETag without quotes."""
    version: str = ""
    """Version or generation, where the source keeps versions."""
    modified: str = ""
    """Last change as the source states it, for people."""
    sha256: str = ""
    """Digest that the source publishes over the whole file, in hex; empty when there is none."""
    checksum: str = ""
    """Another sum that the source publishes over the whole file: ``crc32c:HEX`` or ``git-sha1:HEX``."""
    unpack: str = ""
    """``tar`` or ``tar+gzip`` for an archive, whose members take its place in the tree."""
    strip: str = ""
    """Folder of the archive that holds the model; members outside it are left out."""

    @property
    def proof(self) -> str:
        """The strongest published sum that the bytes are compared with."""
        return "sha256" if self.sha256 else self.checksum.partition(":")[0]


class PullPlan(Message):
    """What to pull from where."""

    source: str
    """Canonical storage URI of the folder."""
    files: list[PlannedFile]
    globs: Globs = Globs()
    """What the user adds and leaves out; archives are known in whole only when they are unpacked."""

    @property
    def bytes(self) -> int:
        """Sum of the files' sizes."""
        return sum(file.size for file in self.files)

    @property
    def proof(self) -> str:
        """What a complete pull of this plan proves."""
        proven = [file.proof for file in self.files if file.proof]
        if not proven:
            return "transport only (digest recorded)"
        words = " and ".join(sorted(set(proven), reverse=True))
        return words if len(proven) == len(self.files) else f"{words} for {len(proven)} of {len(self.files)} files"


def render_plan(plan: PullPlan) -> bytes:
    """Give the plan's canonical text; its SHA-256 is the plan's digest."""
    return json.dumps(plan.model_dump(), sort_keys=True, separators=(",", ":")).encode()


def digest_of(text: bytes) -> str:
    """Give the SHA-256 of a canonical text in hex."""
    return hashlib.sha256(text).hexdigest()


def pin_key(plan: PullPlan, file: PlannedFile) -> str:
    """Give the key of a file's partial download and of its recorded digest: equal keys mean equal bytes."""
    pinned = [plan.source, file.path, file.size, file.validator, file.version]
    return digest_of(json.dumps(pinned, separators=(",", ":")).encode())


class TreeFile(Message):
    """One file of a published tree."""

    path: str
    size: int
    sha256: str


def render_manifest(files: Iterable[TreeFile]) -> bytes:
    """Give a tree's canonical manifest; its SHA-256 is the tree's digest."""
    entries = [file.model_dump() for file in sorted(files, key=lambda file: file.path)]
    return json.dumps({"files": entries}, sort_keys=True, separators=(",", ":")).encode()


def check_names(names: Sequence[str], where: str) -> None:
    """Check that every name may become a file of the tree.

    Raises:
        SpecInvalid: one may not, or there are too many.
    """
    if len(names) > MAX_FILES:
        raise SpecInvalid(
            f"{where} holds more than {MAX_FILES} files: point spec.model.storageUri at the model's own folder"
        )
    for name in names:
        fault = find_name_fault(name)
        if fault:
            raise SpecInvalid(f"{where}: the file name {name!r} {fault}: remove or rename it at the source")
    collision = find_collision(names)
    if collision:
        raise SpecInvalid(f"{where}: {collision}: remove or rename one at the source")


def check_total(files: Iterable[PlannedFile], where: str) -> None:
    """Check the sum of sizes.

    Raises:
        SpecInvalid: it is beyond the bound.
    """
    total = sum(file.size for file in files)
    if total > MAX_TOTAL_BYTES:
        raise SpecInvalid(f"{where} holds {total} bytes of weights, over the bound of {MAX_TOTAL_BYTES}")
