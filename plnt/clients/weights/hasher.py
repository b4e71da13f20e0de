"""Hashes what came out of order, behind the download, from the page cache; ends files.

What comes in order is hashed by the thread that receives it (see `fetch`). SHA-256 runs at 1.0 to 1.8 GB/s and core
with SHA instructions and at 0.5 without; trailing hides it behind the network.
"""

import os

from plnt.clients.weights.board import Board
from plnt.clients.weights.cache import Cache
from plnt.clients.weights.job import Job
from plnt.clients.weights.meter import Meter
from plnt.clients.weights.partial import Partial
from plnt.errors import DigestMismatch, SourceUnavailable
from plnt.model.pull_plan import PullPlan, TreeFile, pin_key
from plnt.model.weight_files import MAX_POINTER_BYTES, check_first_bytes, check_safetensors, count_header_bytes

BUFFER_BYTES = 512 << 10


class Hasher:
    """The body of a hashing thread: hashes what is in order, then checks and keeps complete files."""

    def __init__(self, board: Board, plan: PullPlan, cache: Cache, meter: Meter) -> None:
        self._board, self._plan, self._cache, self._meter = board, plan, cache, meter
        self._view = memoryview(bytearray(BUFFER_BYTES))
        self.kept: list[TreeFile] = []
        """Files that this thread put into the cache."""

    def run(self) -> None:
        """Hash until the pull is over."""
        try:
            while (job := self._board.take_to_hash()) is not None:
                self._advance(job)
        except BaseException as error:  # noqa: BLE001 - carried to the thread that waits for the pull
            self._board.fail(error)

    def _advance(self, job: Job) -> None:
        while not self._board.stop.is_set():
            end = job.partial.reach(job.hashed)
            while job.hashed < end and not self._board.stop.is_set():
                count = os.preadv(job.partial.fd, [self._view[: min(BUFFER_BYTES, end - job.hashed)]], job.hashed)
                if not count:
                    raise SourceUnavailable(
                        f"the partial of {job.file.path} was cut: another process changes the cache"
                    )
                job.hash(self._view[:count])
            if job.hashed == job.file.size:
                self._finish(job)
                return
            if self._board.release(job):
                return

    def _finish(self, job: Job) -> None:
        found, sum_found = job.read_sums()
        if job.file.sha256 and found != job.file.sha256:
            self._refuse(job, f"SHA-256 {found}", job.file.sha256)
            return
        algorithm, _, expected = job.file.checksum.partition(":")
        if sum_found != expected:
            self._refuse(job, f"{algorithm} {sum_found}", expected)
            return
        self._check_structure(job)
        self._cache.keep_blob(job.partial, found, pin_key(self._plan, job.file))
        self.kept.append(TreeFile(path=job.file.path, size=job.file.size, sha256=found))
        self._meter.add_file()
        self._board.close_file(job)

    def _refuse(self, job: Job, found: str, published: str) -> None:
        """Throw the bytes away and fetch them once more.

        Raises:
            DigestMismatch: this was the second time.
        """
        job.partial.forget()
        if job.mismatched:
            raise DigestMismatch(
                f"{self._plan.source}/{job.file.path} came twice with {found} where the source publishes "
                f"{published}: upload the file again"
            )
        self._meter.add_retry()
        self._meter.add_moved(-job.file.size)
        job.mismatched = True
        job.restart(self._cache.open_partial(pin_key(self._plan, job.file), job.file.size))
        self._board.refetch(job)

    def _check_structure(self, job: Job) -> None:
        first = os.pread(job.partial.fd, MAX_POINTER_BYTES, 0)
        check_first_bytes(first, job.file.path, self._plan.source)
        if job.file.path.endswith(".safetensors"):
            length = count_header_bytes(first, job.file.size, job.file.path, self._plan.source)
            header = _read_exactly(job.partial, 8, length)
            check_safetensors(header, job.file.size, job.file.path, self._plan.source)


def _read_exactly(partial: Partial, offset: int, length: int) -> bytes:
    data = b""
    while len(data) < length and (more := os.pread(partial.fd, length - len(data), offset + len(data))):
        data += more
    return data
