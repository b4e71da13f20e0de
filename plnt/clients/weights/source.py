"""What the rest of the pull needs of a source of weights, whatever its scheme."""

from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Protocol

from plnt.errors import SpecInvalid
from plnt.model.pull_plan import PlannedFile
from plnt.model.storage_uri import FIELD, BucketUri, Scheme, StorageUri


@dataclass(frozen=True, slots=True)
class Link:
    """Where a file's bytes can be had for a while, by plain HTTP; holds a signature: never logged."""

    url: str = field(repr=False)
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)


class Source(Protocol):
    """One folder of a store."""

    @property
    def where(self) -> str:
        """Name for people."""

    @property
    def trusted_hosts(self) -> frozenset[str]:
        """``host:port`` that the operator's own configuration names."""

    @property
    def ca_bundle(self) -> str | None:
        """File of certificates to trust; none = the system's."""

    async def list_files(self) -> dict[str, int]:
        """Give path -> size of every file in the folder."""

    async def pin_file(self, path: str) -> PlannedFile:
        """Give the file with what pins its content."""

    async def read_file(self, file: PlannedFile) -> bytes:
        """Read a small file at its pinned content."""

    async def make_link(self, file: PlannedFile) -> Link:
        """Give a fresh link to the file at its pinned content."""


class OpenSource(Protocol):
    """Opens the source of a URI."""

    def __call__(self, uri: BucketUri, /) -> AbstractAsyncContextManager[Source]:
        """Open it."""


def require_built(uri: StorageUri) -> BucketUri:
    """Give ``uri`` if this version can pull from its scheme.

    Raises:
        SpecInvalid: it cannot yet.
    """
    if isinstance(uri, BucketUri) and uri.scheme is Scheme.S3:
        return uri
    raise SpecInvalid(f"{FIELD}: {uri.scheme}:// is not built yet: copy the weights to an s3:// bucket")
