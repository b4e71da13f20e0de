"""Fetches one part over a connection, however often it breaks, until it is there or there is no hope."""

import http.client
import logging
import random
import ssl
import time
from dataclasses import dataclass

from plnt.clients.weights.board import Board
from plnt.clients.weights.budget import Budget
from plnt.clients.weights.job import Job, Part
from plnt.clients.weights.line import Answer, Line
from plnt.clients.weights.meter import Meter
from plnt.clients.weights.redirect import REDIRECTS, follow
from plnt.clients.weights.source import Link
from plnt.clients.weights.throttle import Throttle
from plnt.clients.weights.verdict import Verdict, denied, judge, read_pause
from plnt.errors import SourceUnavailable

logger = logging.getLogger(__name__)

BUFFER_BYTES = 512 << 10
"""Receive buffer, in bytes: received, written and hashed while it is in the second cache. Where that has 2 MiB, 1 MiB
costs 8 % more CPU and 256 KiB 5 %; 4 MiB halves the rate.
"""
NOTE_BYTES, NOTE_SECONDS = 1 << 20, 1.0
"""How much of a part may be lost to kill -9."""
MAX_FAULTS = 6
"""Faults of one part in a row, none of which brought a byte."""
MAX_RELINKS = 3
MAX_HOPS = 5
"""Redirects of one part, as far as browsers of package registries go."""
_BROKEN = (OSError, http.client.HTTPException)


class FetchFault(Exception):
    """This request failed; another may not. ``after`` is the source's own word, in seconds."""

    def __init__(self, text: str, after: float = 0.0) -> None:
        super().__init__(text)
        self.after = after


@dataclass(slots=True)
class _Patience:
    best: int
    pause_seconds: float
    faults: int = 0
    relinks: int = 0
    hops: int = 0

    def meet(self, at: int, fault: FetchFault) -> float:
        """Give the seconds to wait before the next try; raises when there is none."""
        self.faults = 0 if at > self.best else self.faults + 1
        self.best = max(self.best, at)
        if self.faults >= MAX_FAULTS:
            raise SourceUnavailable(f"{fault} ({self.faults} times in a row)")
        pause = self.pause_seconds * 2.0 ** (self.faults - 1) if self.faults else 0.0
        return max(fault.after, pause * random.uniform(0.5, 1.0))  # noqa: S311


class Fetcher:
    """The body of a mover thread."""

    def __init__(self, number: int, board: Board, line: Line, meter: Meter, throttle: Throttle, budget: Budget) -> None:
        self._number, self._board, self._line, self._meter, self._throttle = number, board, line, meter, throttle
        self._budget = budget
        self._view = memoryview(bytearray(BUFFER_BYTES))

    def run(self) -> None:
        """Fetch parts until the pull is over."""
        try:
            while (part := self._board.take_part(self._number)) is not None:
                with self._budget.hold(self._board.stop) as held:
                    if held:
                        self._fetch(part)
        except BaseException as error:  # noqa: BLE001 - carried to the thread that waits for the pull
            self._board.fail(error)
        finally:
            self._line.close()

    def _fetch(self, part: Part) -> None:
        patience = _Patience(part.at, self._line.reach.pause_seconds)
        while part.at < part.end and not self._board.stop.is_set():
            try:
                if not self._try(part, patience):
                    return
            except FetchFault as fault:
                self._line.close()
                if self._board.stop.is_set():
                    return
                self._meter.add_retry()
                logger.info("fetching again", extra={"file": part.job.file.path, "at": part.at, "error": str(fault)})
                self._board.stop.wait(patience.meet(part.at, fault))

    def _try(self, part: Part, patience: _Patience) -> bool:
        """Ask once and take what comes; false when another thread fetches all of the file."""
        file = part.job.file
        try:
            link = part.job.take_link()
            answer = self._line.request(link, part.at, part.end - 1, file.validator)
            if link.follows and answer.status in REDIRECTS:
                self._follow(part.job, link, answer, patience)
                return True
            verdict = judge(answer.status, answer.headers, part.at, file)
            if verdict is Verdict.RELINK:
                self._relink(part.job, link, answer, patience)
            if verdict in {Verdict.RELINK, Verdict.AGAIN}:
                raise FetchFault(f"HTTP {answer.status} for {file.path}", read_pause(answer.headers))
            if verdict is Verdict.WHOLE and not self._take_over(part):
                self._line.close()
                return False
            self._stream(part, answer)
        except (BlockingIOError, TimeoutError, ssl.SSLWantReadError) as error:
            raise FetchFault(f"no byte of {file.path} for too long") from error
        except _BROKEN as error:
            raise FetchFault(f"the connection for {file.path} broke: {type(error).__name__}: {error}") from error
        return True

    def _follow(self, job: Job, link: Link, answer: Answer, patience: _Patience) -> None:
        """Go where the source sends; the other parts of the file go there directly."""
        patience.hops += 1
        if patience.hops > MAX_HOPS:
            raise SourceUnavailable(f"the source redirects {job.file.path} in circles")
        target = follow(link, answer.headers.get("location", ""), self._line.reach.rule)
        job.change_link(link, target)
        self._line.close()

    def _relink(self, job: Job, link: Link, answer: Answer, patience: _Patience) -> None:
        patience.relinks += 1
        if patience.relinks > MAX_RELINKS:
            raise denied(job.file, answer.read_text())
        patience.hops = 0
        job.change_link(link, None)

    def _take_over(self, part: Part) -> bool:
        """Turn the part into the whole file, from its start, unless another thread has done that already."""
        if not part.is_whole and not self._board.claim_whole(part.job):
            return False
        part.is_whole, part.at, part.end = True, 0, part.job.file.size
        return True

    def _stream(self, part: Part, answer: Answer) -> None:
        noted, noted_at = part.at, time.monotonic()
        partial = part.job.partial
        hashes = False
        try:
            while part.at < part.end and not self._board.stop.is_set():
                data = self._receive(part, answer)
                partial.write(data, part.at)
                hashes = hashes or self._board.claim_hash(part.job, partial, part.at)
                if hashes:
                    # While it is in the CPU's cache: from the page cache it would cost a fifth more.
                    part.job.hash(data)
                part.at += len(data)
                self._meter.add_moved(len(data))
                self._throttle.take(len(data), self._board.stop)
                if part.at - noted >= NOTE_BYTES or time.monotonic() - noted_at > NOTE_SECONDS:
                    partial.note(noted, part.at)
                    noted, noted_at = part.at, time.monotonic()
                    self._board.offer_to_hash(part.job)
        finally:
            partial.note(noted, part.at)
            if hashes:
                self._board.yield_hash(part.job)
            else:
                self._board.offer_to_hash(part.job)
        if not answer.finish():
            self._line.close()

    def _receive(self, part: Part, answer: Answer) -> memoryview:
        wanted = min(self._throttle.chunk, part.end - part.at)
        received = answer.read_into(self._view[:wanted])
        if not received:
            raise FetchFault(f"{part.job.file.path} ended {part.end - part.at} bytes early")
        return self._view[:received]
