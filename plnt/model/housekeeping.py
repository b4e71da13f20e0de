"""What the janitor's steps take and give, and its decisions: which releases, trees and blobs nobody needs."""

from collections.abc import Collection, Iterable, Sequence
from datetime import datetime, timedelta

from plnt.model import names
from plnt.model.desired import Ref
from plnt.model.message import Message
from plnt.model.messages import ReleaseRequest
from plnt.model.release_recovery import ReleaseRecord, newest_record

GRACE_SECONDS = 3600.0
"""Age under which nothing is collected, in seconds: a rollout between two looks may count on it."""
PARTIAL_SECONDS = 86_400.0
"""Silence after which a partial download is given up, in seconds."""
LOW_WATER_PERCENT = 15
"""How far under the high-water mark a collection goes, in percent: the next one is then not due at once."""
ORPHAN_AGE = timedelta(minutes=10)
"""Age of Helm's newest record under which a release is no orphan: its WorkflowRun may have been listed before it."""


class Housekeeping(Message):
    """Look after everything of ours."""

    namespaces: list[str] = []
    """Where WorkflowRuns live; empty = all namespaces."""


class Swept(Message):
    """Releases that were uninstalled, as ``namespace/release``."""

    releases: list[str] = []


class LiveTrees(Message):
    """Digests of the weights trees that pods have mounted or that a serving record names."""

    trees: list[str] = []


class CollectCache(Message):
    """Collect what is unused; ``live`` trees are in use."""

    live: list[str]


class Collected(Message):
    """What was removed from the cache."""

    trees: list[str] = []
    blobs: int = 0
    partials: int = 0
    bytes_freed: int = 0
    bytes_used: int = 0
    """Bytes that blobs and partials take now."""


class TreeSeen(Message):
    """A published tree as it lies in the cache."""

    digest: str
    last_used: float
    """Seconds since the epoch."""
    blobs: dict[str, int]
    """SHA-256 -> bytes of its files."""

    @property
    def bytes(self) -> int:
        """Sum of the different files' sizes."""
        return sum(self.blobs.values())


class Room(Message):
    """How full the cache may be, in bytes and percent."""

    capacity: int
    used: int
    keep_seconds: float
    high_water_percent: int

    @property
    def excess(self) -> int:
        """Bytes that must go; 0 under the high-water mark."""
        if self.used * 100 <= self.capacity * self.high_water_percent:
            return 0
        low = max(0, self.high_water_percent - LOW_WATER_PERCENT)
        return self.used - self.capacity * low // 100


def choose_trees(trees: Iterable[TreeSeen], live: Collection[str], now: float, room: Room) -> list[TreeSeen]:
    """Choose the trees to remove: those unused for too long, then the longest unused ones until there is room.

    One in ``live`` is never chosen, nor one that was used within the grace time. A blob counts as freed with the
    last tree that has it.
    """
    trees = sorted(trees, key=lambda tree: tree.last_used)
    users: dict[str, int] = {}
    for tree in trees:
        for blob in tree.blobs:
            users[blob] = users.get(blob, 0) + 1
    chosen: list[TreeSeen] = []
    excess = room.excess
    for tree in trees:
        age = now - tree.last_used
        if tree.digest in live or age <= GRACE_SECONDS or (age <= room.keep_seconds and excess <= 0):
            continue
        chosen.append(tree)
        for blob, size in tree.blobs.items():
            users[blob] -= 1
            excess -= 0 if users[blob] else size
    return chosen


def choose_orphans(
    records: Sequence[ReleaseRecord], namespace: str, known: Collection[str], now: datetime
) -> list[ReleaseRequest]:
    """Choose the releases whose WorkflowRun is gone; ``known`` are the names of those that exist or have an open run.

    Without our owner label, or with another release's name under it, a release is none of ours.
    """
    bases = {names.base_name(name) for name in known}
    found: list[ReleaseRequest] = []
    for release in sorted({record.release for record in records}):
        own = [record for record in records if record.release == release]
        newest = newest_record(own)
        owners = {record.owner for record in own}
        if newest is None or len(owners) != 1 or now - newest.changed_at < ORPHAN_AGE:
            continue
        (base,) = owners
        if base and base not in bases and release.startswith(f"{base}-"):
            # The WorkflowRun's own name is lost with it; its base name stands for it.
            found.append(ReleaseRequest(ref=Ref(namespace=namespace, name=base), base=base, release=release))
    return found
