"""What the rest of the pull needs of a source of weights, whatever its scheme."""

from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Protocol

from plnt.clients.weights.credentials import Credentials
from plnt.model.pull_plan import PlannedFile
from plnt.model.storage_uri import StorageUri


@dataclass(frozen=True, slots=True)
class Link:
    """Where a file's bytes can be had for a while, by plain HTTP; holds a signature: never logged."""

    url: str = field(repr=False)
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    follows: bool = False
    """Redirects are part of the source's protocol; credentials stay behind when the host changes."""


@dataclass(frozen=True, slots=True)
class Packed:
    """Archives of a source, and what was seen in them before they are pulled."""

    archives: tuple[PlannedFile, ...]
    sizes: Mapping[str, int]
    """Members that were seen, by path below the model's folder."""
    is_complete: bool
    """All members were seen; else the rest is checked when the archives are unpacked."""


class Source(Protocol):
    """One folder of a store. Once its files were listed, ``where`` pins the revision that was listed."""

    @property
    def packed(self) -> Packed | None:
        """Archives among what was listed; none where the source holds plain files only."""

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

    def __call__(
        self, uri: StorageUri, credentials: Credentials | None = None, /
    ) -> AbstractAsyncContextManager[Source]:
        """Open it, with the pool's own identity when no credentials are given."""
