"""Collects what nobody needs of the cache, and looks after the rest: the work behind the janitor and `plnt cache`.

A file's change time says when it was used last; the grace of an hour is far over what clocks of volume and worker
differ by. Two collections at once do no harm, and one that is killed leaves a cache that is as good.
"""

import hashlib
import json
import os
import shutil
import time
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from uuid import uuid4

from plnt.clients.weights.cache import MANIFEST, Cache
from plnt.clients.weights.leases import Leases
from plnt.errors import PlntError
from plnt.model.housekeeping import GRACE_SECONDS, PARTIAL_SECONDS, Collected, Room, TreeSeen, choose_trees
from plnt.model.pull_plan import digest_of, pin_key

LIVE = "live.json"
"""Trees that the janitor saw in use, for people's own collections."""


@dataclass(frozen=True, slots=True)
class Rules:
    """When something goes."""

    keep_seconds: float
    high_water_percent: int


@dataclass(slots=True)
class Collector:
    """Every method blocks: call it from a thread. ``is_stopped`` is asked between two removals."""

    cache: Cache
    now: float = field(default_factory=time.time)
    is_stopped: Callable[[], bool] = lambda: False

    def list_trees(self) -> list[TreeSeen]:
        """Give every published tree."""
        found = []
        for path in sorted((self.cache.root / "trees").iterdir()):
            try:
                text, used = (path / MANIFEST).read_bytes(), (path / MANIFEST).stat().st_mtime
                files = json.loads(text)["files"]
            except (OSError, ValueError, KeyError):
                continue
            blobs = {str(file["sha256"]): int(file["size"]) for file in files}
            found.append(TreeSeen(digest=path.name, last_used=used, blobs=blobs))
        return found

    def collect(self, live: Collection[str], plans: Collection[str], rules: Rules) -> Collected:
        """Remove what neither ``live`` trees nor the pulls of ``plans`` need, by age, and for room.

        Blobs that a plan names stay: its pull may link them at any moment.
        """
        for tree in live:
            self.cache.mark_used(tree)
        plans = {*plans, *self._claimed_plans()}
        capacity, before = self.cache.measure_room()
        room = Room(
            capacity=capacity,
            used=before,
            keep_seconds=rules.keep_seconds,
            high_water_percent=rules.high_water_percent,
        )
        dropped = [tree.digest for tree in self._drop_trees(choose_trees(self.list_trees(), live, self.now, room))]
        keys, digests = self._needed_by(plans)
        blobs, freed = self._drop_blobs(digests)
        partials = self._drop_partials(keys, plans)
        self._drop_notes(plans, rules.keep_seconds)
        return Collected(
            trees=dropped, blobs=blobs, partials=partials, bytes_freed=freed, bytes_used=self.cache.count_used_bytes()
        )

    def _drop_trees(self, chosen: list[TreeSeen]) -> Iterator[TreeSeen]:
        for tree in chosen:
            path = self.cache.root / "trees" / tree.digest
            # Used since it was looked at: somebody else's choice now.
            if self.is_stopped() or _time_of(path / MANIFEST) > tree.last_used:
                continue
            trash = self.cache.tmp / uuid4().hex
            try:
                path.rename(trash)
            except FileNotFoundError:
                continue
            shutil.rmtree(trash, ignore_errors=True)
            yield tree

    def list_held_plans(self) -> set[str]:
        """Give the plans of all leases, whether their workflows still run or not."""
        return {lease.plan for lease, _ in Leases(self.cache.root).list()}

    def _claimed_plans(self) -> set[str]:
        claims = (self.cache.root / "partials").glob("*.claim")
        return {path.stem for path in claims if self.now - _time_of(path) < PARTIAL_SECONDS}

    def _needed_by(self, plans: Collection[str]) -> tuple[set[str], set[str]]:
        """Give the partials' keys and the blobs that pulls of ``plans`` may use."""
        keys: set[str] = set()
        digests: set[str] = set()
        for digest in plans:
            try:
                plan = self.cache.read_plan(digest)
            except (PlntError, OSError, ValueError):
                continue
            for file in plan.files:
                key = pin_key(plan, file)
                keys.add(key)
                digests |= {file.sha256, self.cache.read_pin(key)}
        return keys, digests

    def _drop_blobs(self, needed: Collection[str]) -> tuple[int, int]:
        linked = {blob for tree in self.list_trees() for blob in tree.blobs}
        count = freed = 0
        for path in (self.cache.root / "blobs").glob("sha256/*/*"):
            if self.is_stopped():
                break
            if path.name in linked or path.name in needed or self.now - _time_of(path) <= GRACE_SECONDS:
                continue
            freed += _bytes_of(path)
            path.unlink(missing_ok=True)
            count += 1
        return count, freed

    def _drop_partials(self, keys: Collection[str], plans: Collection[str]) -> int:
        count = 0
        for path in (self.cache.root / "partials").iterdir():
            if self.now - _time_of(path) <= PARTIAL_SECONDS or path.stem in keys or path.stem in plans:
                continue
            path.unlink(missing_ok=True)
            count += path.suffix == ".data"
        return count

    def _drop_notes(self, plans: Collection[str], keep_seconds: float) -> None:
        for path in self.cache.tmp.iterdir():
            if self.now - _time_of(path) > PARTIAL_SECONDS:
                _remove(path)
        oldest = self.now - max(keep_seconds, PARTIAL_SECONDS)
        for path in (self.cache.root / "plans").iterdir():
            if path.stem not in plans and _time_of(path) < oldest and not self._names_tree(path):
                path.unlink(missing_ok=True)
        for path in (self.cache.root / "pins").glob("*/*"):
            if _time_of(path) < oldest and not self.cache.blob_path(path.read_text()).exists():
                path.unlink(missing_ok=True)

    def _names_tree(self, path: Path) -> bool:
        return self.cache.find_tree(path.stem, mark=False) is not None

    def note_live(self, live: Collection[str]) -> None:
        """Leave word of what is in use."""
        self.cache.write_note(LIVE, json.dumps({"at": self.now, "trees": sorted(live)}).encode())

    def read_live(self) -> set[str] | None:
        """Give the trees that the janitor saw in use within the last day; none = it did not look."""
        try:
            word = json.loads((self.cache.root / LIVE).read_bytes())
        except (FileNotFoundError, ValueError):
            return None
        return set(word["trees"]) if self.now - word["at"] < PARTIAL_SECONDS else None

    def find_faults(self, tree: TreeSeen) -> list[str]:
        """Hash a tree anew; gives what is wrong with it, a line each."""
        folder = self.cache.root / "trees" / tree.digest
        text = (folder / MANIFEST).read_bytes()
        if digest_of(text) != tree.digest:
            return [f"{folder / MANIFEST}: its SHA-256 is not the tree's name"]
        files = json.loads(text)["files"]
        known = {MANIFEST, *(file["path"] for file in files)}
        faults = [
            f"{path}: not part of the tree"
            for path in folder.rglob("*")
            if path.is_file() and str(path.relative_to(folder)) not in known
        ]
        for file in files:
            fault = _check_file(folder / file["path"], file["size"], file["sha256"])
            faults += [fault] if fault else []
        return faults


def _check_file(path: Path, size: int, sha256: str) -> str:
    try:
        with path.open("rb") as data:
            if (found := os.fstat(data.fileno()).st_size) != size:
                return f"{path}: {found} bytes where the manifest says {size}"
            digest = hashlib.file_digest(data, "sha256").hexdigest()
    except OSError as error:
        return f"{path}: {error.strerror}"
    return "" if digest == sha256 else f"{path}: SHA-256 {digest} where the manifest says {sha256}"


def _time_of(path: Path) -> float:
    """Give a file's change time; one that went away counts as just used."""
    try:
        return path.lstat().st_mtime
    except FileNotFoundError:
        return float("inf")


def _bytes_of(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)
