"""A file on its way, and the parts that it is fetched in."""

import threading
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from hashlib import sha256
from typing import TYPE_CHECKING

from plnt.clients.weights.checksum import Checksum, start_checksum
from plnt.clients.weights.partial import Partial
from plnt.clients.weights.source import Link
from plnt.model.pull_plan import PlannedFile

if TYPE_CHECKING:
    from hashlib import _Hash

LINK_SECONDS = 60.0
"""Longest wait for a fresh link, in seconds."""


@dataclass(eq=False, slots=True)
class Job:
    """One file."""

    file: PlannedFile
    partial: Partial
    make_link: Callable[[PlannedFile], "Future[Link]"]
    hashed: int = 0
    """Bytes from the start that the sums hold."""
    hashing: bool = False
    """Some thread has the file to hash it."""
    is_whole: bool = False
    """Some thread fetches all of it."""
    mismatched: bool = False
    retired: list[Partial] = field(default_factory=list)
    """Partials that were thrown away; closed with the last thread."""
    _digest: "_Hash" = field(default_factory=sha256)
    _checksum: Checksum | None = None
    _link: Link | None = None
    _linking: threading.Lock = field(default_factory=threading.Lock)

    def take_link(self) -> Link:
        """Give the link that all parts share; a source is asked for one at a time."""
        with self._linking:
            if self._link is None:
                self._link = self.make_link(self.file).result(LINK_SECONDS)
            return self._link

    def change_link(self, old: Link, new: Link | None) -> None:
        """Put ``new`` in the place of ``old``, unless another thread did; none = ask for a fresh one."""
        with self._linking:
            if self._link is old:
                self._link = new

    def hash(self, data: memoryview) -> None:
        """Hash the next bytes.

        Raises:
            SourceUnavailable: the source publishes a sum that this version cannot compute.
        """
        if not self.hashed:
            self._checksum = start_checksum(self.file.checksum, self.file.size)
        self._digest.update(data)
        if self._checksum is not None:
            self._checksum.update(data)
        self.hashed += len(data)

    def read_sums(self) -> tuple[str, str]:
        """Give the SHA-256 of what was hashed, and the sum that the source publishes, or nothing where it has none."""
        if not self.file.size:
            self._checksum = start_checksum(self.file.checksum, 0)
        return self._digest.hexdigest(), self._checksum.hexdigest() if self._checksum is not None else ""

    def restart(self, partial: Partial) -> None:
        """Begin again with an empty partial."""
        self.retired.append(self.partial)
        self.partial, self.hashed, self._digest, self.is_whole = partial, 0, sha256(), False


@dataclass(eq=False, slots=True)
class Part:
    """A byte range to fetch; ``at`` is the next byte."""

    job: Job
    at: int
    end: int
    is_whole: bool = False
    """The server knows no ranges, and this part is all of the file."""
