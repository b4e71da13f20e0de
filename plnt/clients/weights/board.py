"""What the threads of one pull share: the parts still to fetch, the files still open, the first failure."""

import threading
from collections import deque
from collections.abc import Sequence

from plnt.clients.weights.job import Job, Part
from plnt.clients.weights.partial import Partial
from plnt.clients.weights.parts import Parts

MAX_BACKLOG_BYTES = 1 << 30
"""Bytes in order that wait for a hasher above which no part is begun: they should still be in the page cache."""
_LOOK_SECONDS = 0.2


class Board:
    """Hands out parts and knows when the pull is over."""

    def __init__(self, jobs: Sequence[Job], width: int) -> None:
        self.max_backlog = MAX_BACKLOG_BYTES
        self.stop = threading.Event()
        """Set when the pull is over for any reason; threads look at it at every buffer."""
        self.failure: BaseException | None = None
        self._width = width
        self._parts = Parts(jobs)
        self._to_hash: deque[Job] = deque()
        self._behind: set[Job] = set()
        self._closed: set[Job] = set()
        self._open = len(jobs)
        lock = threading.RLock()
        self._parts_changed, self._hash_changed = threading.Condition(lock), threading.Condition(lock)
        if not jobs:
            self.stop.set()

    def widen(self, width: int) -> None:
        """Let the first ``width`` connections work; the others end their parts and rest."""
        with self._parts_changed:
            if width != self._width:
                self._width = width
                self._parts_changed.notify_all()

    def take_part(self, line: int) -> Part | None:
        """Wait for a part for connection ``line``, and for the hashers if they are far behind; None = it is over."""
        with self._parts_changed:
            while not self._may_take(line):
                self._parts_changed.wait(_LOOK_SECONDS)
            return None if self.stop.is_set() else self._parts.take(self._width)

    def _may_take(self, line: int) -> bool:
        if self.stop.is_set() or not self._parts or line >= self._width:
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

    def claim_hash(self, job: Job, partial: Partial, at: int) -> bool:
        """Ask to hash the bytes that come next in a file, at ``at``, as they come."""
        # Asked at every buffer: mostly a look without the lock is enough.
        if job.hashed != at or job.hashing:
            return False
        with self._hash_changed:
            if job.hashing or job in self._closed or job.hashed != at or job.partial is not partial:
                return False
            job.hashing = True
            return True

    def yield_hash(self, job: Job) -> None:
        """Give a file back that was hashed as it came, to the hashers if there is more of it."""
        with self._hash_changed:
            job.hashing = False
            if job.hashed == job.file.size or job.partial.reach(job.hashed) > job.hashed:
                self.offer_to_hash(job)

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
            self._parts.put_back(job)
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
