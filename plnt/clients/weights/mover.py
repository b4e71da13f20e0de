"""Moves the missing files of a plan from a source into the cache, in threads.

It knows links, sizes and validators, no scheme: whatever a source is, its bytes come the same way.
"""

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

from plnt.clients.weights.board import Board
from plnt.clients.weights.budget import Budget
from plnt.clients.weights.cache import Cache
from plnt.clients.weights.fetch import Fetcher
from plnt.clients.weights.hasher import Hasher
from plnt.clients.weights.job import Job
from plnt.clients.weights.line import Line, Reach
from plnt.clients.weights.meter import Meter
from plnt.clients.weights.ramp import Ramp
from plnt.clients.weights.throttle import Throttle
from plnt.errors import PlntError, SourceUnavailable
from plnt.model.pull_plan import PullPlan, TreeFile

HASHERS = 4
"""As many as files in flight, whatever the cores: one that waits for the volume must not hold the others."""
LOOK_SECONDS = 0.05
"""Time between two looks at the rate, in seconds."""
WRITE_SECONDS = 0.1
"""Time between two looks at what is to be written to the volume, in seconds."""
JOIN_SECONDS = 1.5
"""Longest wait for threads after a stop, in seconds."""


@dataclass(eq=False, slots=True)
class Mover:
    """One move. `run` blocks; `stop` may be called from any thread."""

    plan: PullPlan
    cache: Cache
    meter: Meter
    reach: Reach
    throttle: Throttle
    connections: int
    budget: Budget
    _board: Board | None = None
    _lines: list[Line] = field(default_factory=list)
    _stopped: bool = False

    def run(self, jobs: Sequence[Job]) -> list[TreeFile]:
        """Move the jobs' files and give what is in the cache now; partials stay when it ends early.

        Raises:
            PlntError: why it cannot be done.
        """
        connections = self.throttle.bound_connections(self.connections)
        ramp = Ramp(connections, time.monotonic())
        board = self._board = Board(jobs, ramp.width)
        hashers = [Hasher(board, self.plan, self.cache, self.meter) for _ in range(HASHERS)]
        self._lines = [Line(self.reach) for _ in range(connections)]
        fetchers = [
            Fetcher(number, board, line, self.meter, self.throttle, self.budget)
            for number, line in enumerate(self._lines)
        ]
        if self._stopped:
            self.stop()
        for job in jobs:
            board.offer_to_hash(job)
        writer = partial(write_back, board, jobs)
        threads = _start([*(fetcher.run for fetcher in fetchers), *(hasher.run for hasher in hashers), writer])
        while not board.stop.wait(LOOK_SECONDS):
            board.widen(ramp.look(self.meter.moved, time.monotonic()))
        self._end(threads, jobs)
        if board.failure is not None:
            raise board.failure
        kept = [file for hasher in hashers for file in hasher.kept]
        if sorted(file.path for file in kept) != sorted(job.file.path for job in jobs):
            raise SourceUnavailable(f"{self.plan.source}: not every file was kept: the pull is tried again")
        return kept

    def stop(self) -> None:
        """End the move soon, keeping what is there."""
        self.fail(None)

    def fail(self, error: PlntError | None) -> None:
        """End the move soon with ``error``, keeping what is there."""
        self._stopped = True
        if self._board is not None:
            self._board.fail(error)
        for line in self._lines:
            line.abort()

    def _end(self, threads: Sequence[threading.Thread], jobs: Sequence[Job]) -> None:
        for line in self._lines:
            line.abort()
        deadline = time.monotonic() + JOIN_SECONDS
        for thread in threads:
            thread.join(max(0.0, deadline - time.monotonic()))
        # A thread that still hangs in a name look-up must not find its descriptor given to another file.
        if not any(thread.is_alive() for thread in threads):
            for one in [one for job in jobs for one in (job.partial, *job.retired)]:
                one.close()


def write_back(board: Board, jobs: Sequence[Job]) -> None:
    """Bring what comes to the volume until the move is over: the body of a thread, so that none that receives waits."""
    try:
        while not board.stop.wait(WRITE_SECONDS):
            for job in jobs:
                job.partial.write_back()
    except BaseException as error:  # noqa: BLE001 - carried to the thread that waits for the pull
        board.fail(error)


def _start(bodies: Sequence[Callable[[], None]]) -> list[threading.Thread]:
    threads = [threading.Thread(target=body, name=f"pull-{number}", daemon=True) for number, body in enumerate(bodies)]
    for thread in threads:
        thread.start()
    return threads
