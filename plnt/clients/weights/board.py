"""What the threads of one pull share: the parts still to fetch, the files still open, the first failure."""

import threading
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from hashlib import sha256
from itertools import zip_longest
from typing import TYPE_CHECKING

from plnt.clients.weights.checksum import Checksum
from plnt.clients.weights.partial import Partial
from plnt.clients.weights.source import Link
from plnt.model.pull_plan import PlannedFile

if TYPE_CHECKING:
    from hashlib import _Hash

SMALL_BYTES = 8 << 20
"""Files up to this size go first, one request each, so that a broken configuration shows early."""
MIN_PART_BYTES, MAX_PART_BYTES = 8 << 20, 64 << 20
PARTS_PER_CONNECTION = 8
"""With fewer, the last parts leave connections idle (measured with a cap of 90 MB/s each)."""
MAX_BACKLOG_BYTES = 1 << 30
"""Bytes in order that wait for a hasher above which no part is begun: they should still be in the page cache."""
_LOOK_SECONDS = 0.2
LANES = 4
"""Files in flight at once: parts ascend in each, which keeps the hasher close behind and the disk near-sequential."""


@dataclass(eq=False, slots=True)
class Job:
    """One file on its way."""

    file: PlannedFile
    partial: Partial
    make_link: Callable[[PlannedFile], "Future[Link]"]
    hashed: int = 0
    digest: "_Hash" = field(default_factory=sha256)
    checksum: Checksum | None = None
    """The sum that the source publishes beside or instead of SHA-256."""
    hashing: bool = False
    is_whole: bool = False
    """Some thread fetches all of it."""
    mismatched: bool = False
    link: Link | None = None
    retired: list[Partial] = field(default_factory=list)
    """Partials that were thrown away; closed with the last thread."""

    def restart(self, partial: Partial) -> None:
        """Begin again with an empty partial."""
        self.retired.append(self.partial)
        self.partial, self.hashed, self.digest, self.is_whole = partial, 0, sha256(), False


@dataclass(eq=False, slots=True)
class Part:
    """A byte range to fetch; ``at`` is the next byte."""

    job: Job
    at: int
    end: int
    is_whole: bool = False
    """The server knows no ranges, and this part is all of the file."""


def choose_part_bytes(total: int, connections: int) -> int:
    """Give the size of a part for ``total`` bytes over ``connections``."""
    wanted = total // (PARTS_PER_CONNECTION * connections)
    return max(MIN_PART_BYTES, min(MAX_PART_BYTES, wanted >> 20 << 20))


def order_parts(jobs: Iterable[Job], part_bytes: int) -> list[Part]:
    """Cut what is missing of each file into parts: small files first, then the others, interleaved."""
    jobs = sorted(jobs, key=lambda job: -job.file.size)
    small = [part for job in jobs if job.file.size <= SMALL_BYTES for part in cut_parts(job, part_bytes)]
    large = [job for job in jobs if job.file.size > SMALL_BYTES]
    lanes = [[part for job in large[lane::LANES] for part in cut_parts(job, part_bytes)] for lane in range(LANES)]
    return small + [part for row in zip_longest(*lanes) for part in row if part is not None]


def cut_parts(job: Job, part_bytes: int) -> list[Part]:
    """Cut what is missing of one file."""
    return [
        Part(job, at, min(at + part_bytes, end))
        for first, end in job.partial.gaps()
        for at in range(first, end, part_bytes)
    ]


class Board:
    """Hands out parts and knows when the pull is over."""

    def __init__(self, jobs: Sequence[Job], part_bytes: int) -> None:
        self.part_bytes = part_bytes
        self.max_backlog = MAX_BACKLOG_BYTES
        self.stop = threading.Event()
        """Set when the pull is over for any reason; threads look at it at every buffer."""
        self.failure: BaseException | None = None
        self._parts = deque(order_parts(jobs, part_bytes))
        self._to_hash: deque[Job] = deque()
        self._behind: set[Job] = set()
        self._closed: set[Job] = set()
        self._open = len(jobs)
        lock = threading.RLock()
        self._parts_changed, self._hash_changed = threading.Condition(lock), threading.Condition(lock)
        if not jobs:
            self.stop.set()

    def take_part(self) -> Part | None:
        """Wait for a part, and for the hashers if they are far behind; None = the pull is over."""
        with self._parts_changed:
            while not self._may_take():
                self._parts_changed.wait(_LOOK_SECONDS)
            return None if self.stop.is_set() else self._parts.popleft()

    def _may_take(self) -> bool:
        if self.stop.is_set() or not self._parts:
            return self.stop.is_set()
        return sum(job.partial.reach(job.hashed) - job.hashed for job in self._behind) <= self.max_backlog

    def take_to_hash(self) -> Job | None:
        """Wait for a file with bytes to hash; None = the pull is over."""
        with self._hash_changed:
            self._hash_changed.wait_for(lambda: self._to_hash or self.stop.is_set())
            return None if self.stop.is_set() else self._to_hash.popleft()

    def offer_to_hash(self, job: Job) -> None:
        """Say that a file has more bytes in order; a file is with one hasher at a time.

        The word may come late: its bytes were seen, hashed and the file closed before it. Then it says nothing.
        """
        with self._hash_changed:
            if not job.hashing and job not in self._closed:
                job.hashing = True
                self._behind.add(job)
                self._to_hash.append(job)
                self._hash_changed.notify()

    def release(self, job: Job) -> bool:
        """Give a file back after hashing; false when more bytes came meanwhile and it must be looked at again."""
        with self._parts_changed:
            if job.hashed < job.file.size and job.partial.reach(job.hashed) > job.hashed:
                return False
            self._put_down(job)
            return True

    def _put_down(self, job: Job) -> None:
        job.hashing = False
        self._behind.discard(job)
        self._parts_changed.notify_all()

    def claim_whole(self, job: Job) -> bool:
        """Ask to be the thread that fetches all of a file."""
        with self._parts_changed:
            mine = not job.is_whole
            job.is_whole = True
            return mine

    def refetch(self, job: Job) -> None:
        """Put a restarted file's parts back."""
        with self._parts_changed:
            self._parts.extend(cut_parts(job, self.part_bytes))
            self._put_down(job)

    def close_file(self, job: Job) -> None:
        """Count a file as done; the last one ends the pull."""
        with self._parts_changed:
            self._put_down(job)
            self._closed.add(job)
            self._open -= 1
            if not self._open:
                self._end()

    def _end(self) -> None:
        self.stop.set()
        self._parts_changed.notify_all()
        self._hash_changed.notify_all()

    def fail(self, error: BaseException | None) -> None:
        """End the pull; the first error is kept, none means that it was told to stop."""
        with self._parts_changed:
            if not self.stop.is_set():
                self.failure = error
            self._end()
