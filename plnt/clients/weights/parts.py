"""What is still to fetch, cut into parts as connections come for them."""

from collections import deque
from collections.abc import Iterable

from plnt.clients.weights.job import Job, Part

SMALL_BYTES = 8 << 20
"""Files up to this size go first, one request each, so that a broken configuration shows early."""
MIN_PART_BYTES, MAX_PART_BYTES = 8 << 20, 64 << 20
"""Bounds of a part. Stores cut objects into pieces of 8 MiB, at multiples of which parts end: a piece is read once."""
ROUNDS = 2
"""Parts that each connection still gets of what is left: large ones first, which cost a server less, small ones last,
so that no connection is idle for long while another one ends."""
LANES = 4
"""Files in flight at once: parts ascend in each, which keeps hashing close behind and the disk near-sequential."""


class Parts:
    """Small files first, then the others in lanes. Not thread-safe."""

    def __init__(self, jobs: Iterable[Job]) -> None:
        ordered = sorted(jobs, key=lambda job: -job.file.size)
        large = [job for job in ordered if job.file.size > SMALL_BYTES]
        self._small = deque(part for job in ordered if job.file.size <= SMALL_BYTES for part in _list_gaps(job))
        lanes = [deque(part for job in large[lane::LANES] for part in _list_gaps(job)) for lane in range(LANES)]
        self._lanes = deque(lane for lane in lanes if lane)
        self._left = sum(part.end - part.at for lane in self._lanes for part in lane)

    def __bool__(self) -> bool:
        """Tell whether anything is left."""
        return bool(self._small or self._lanes)

    def take(self, connections: int) -> Part:
        """Give the next part, in the size that suits ``connections`` at work."""
        if self._small:
            return self._small.popleft()
        lane = self._lanes.popleft()
        gap = lane[0]
        end = cut_part(gap.at, gap.end, self._left // (ROUNDS * connections))
        self._left -= end - gap.at
        part = Part(gap.job, gap.at, end)
        gap.at = end
        if gap.at == gap.end:
            lane.popleft()
        if lane:
            self._lanes.append(lane)
        return part

    def put_back(self, job: Job) -> None:
        """Add what is missing of a file once more."""
        lane = deque(_list_gaps(job))
        if lane:
            self._lanes.append(lane)
            self._left += sum(part.end - part.at for part in lane)


def cut_part(first: int, end: int, wanted: int) -> int:
    """Give the end of a part of about ``wanted`` bytes that begins at ``first`` of a gap up to ``end``."""
    size = max(MIN_PART_BYTES, min(MAX_PART_BYTES, wanted))
    return min(end, (first + size) // MIN_PART_BYTES * MIN_PART_BYTES)


def _list_gaps(job: Job) -> list[Part]:
    return [Part(job, first, end) for first, end in job.partial.gaps()]
