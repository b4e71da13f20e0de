"""The weights cache on its volume; every name in it says what is in it, so that any number of workers may share it.

VERSION                  layout of this folder
plans/<digest>.json      a pull plan; <digest>.tree beside it: what a complete pull of it gave
partials/<key>.*         downloads under way, and claims
leases/<workflow>.json   what a workflow counts on, so that it is not collected
pins/<ab>/<key>          digest of the bytes that a pinned file had, so that no other plan fetches it again
blobs/sha256/<ab>/<hex>  verified contents
trees/<digest>/          hard links to blobs, published by one rename; the digest is that of its manifest
tmp/                     what is being made
"""

import errno
import os
import shutil
from pathlib import Path
from uuid import uuid4

from plnt.clients.weights.partial import Partial
from plnt.errors import InsufficientDisk, WeightsNotFound
from plnt.model.messages import Tree
from plnt.model.pull_plan import PullPlan, TreeFile, digest_of, render_manifest, render_plan
from plnt.settings import SettingsInvalid

LAYOUT = "1"
MANIFEST = ".plnt-manifest.json"
FOLDERS = ("blobs/sha256", "leases", "partials", "pins", "plans", "trees", "tmp")
SPARE_BYTES = 64 << 20
"""Room kept free beside the files, in bytes: journals, plans, folders."""
_NO_LINKS = frozenset({errno.EPERM, errno.EOPNOTSUPP, errno.EMLINK, errno.ENOSYS, errno.EXDEV})


class Cache:
    """Reads and writes the cache. Every method blocks: call it from a thread."""

    def __init__(self, root: Path, max_bytes: int | None = None) -> None:
        self.root = root
        self._max_bytes = max_bytes

    def prepare(self) -> None:
        """Make the folders.

        Raises:
            SettingsInvalid: the folder has another layout, or is not writable.
        """
        version = self.root / "VERSION"
        try:
            for folder in FOLDERS:
                (self.root / folder).mkdir(parents=True, exist_ok=True)
            if not version.exists():
                self._write(version, LAYOUT.encode())
        except OSError as error:
            raise SettingsInvalid(f"PLNT_CACHE_DIR: {self.root}: {error.strerror}") from error
        found = version.read_text().strip()
        if found != LAYOUT:
            raise SettingsInvalid(f"PLNT_CACHE_DIR: {self.root} has layout {found!r}, this version writes {LAYOUT!r}")

    def claim_path(self, plan_digest: str) -> Path:
        """Give the claim file of a plan."""
        return self.root / "partials" / f"{plan_digest}.claim"

    @property
    def tmp(self) -> Path:
        """Folder for what is being made."""
        return self.root / "tmp"

    def write_plan(self, plan: PullPlan) -> str:
        """Write a plan and give its digest."""
        text = render_plan(plan)
        digest = digest_of(text)
        self._write(self.root / "plans" / f"{digest}.json", text)
        return digest

    def read_plan(self, digest: str) -> PullPlan:
        """Read a plan.

        Raises:
            WeightsNotFound: it is not in this cache.
        """
        path = self.root / "plans" / f"{digest}.json"
        try:
            text = path.read_bytes()
        except FileNotFoundError:
            text = b""
        if digest_of(text) != digest:
            raise WeightsNotFound(
                f"pull plan {digest} is not in the cache at {self.root}: retry the run from its start"
            )
        return PullPlan.model_validate_json(text)

    def find_tree(self, plan_digest: str, *, mark: bool = True) -> Tree | None:
        """Give the tree that a complete pull of the plan gave, if it is still there; ``mark`` it as used now."""
        try:
            tree = Tree.model_validate_json((self.root / "plans" / f"{plan_digest}.tree").read_bytes())
        except FileNotFoundError:
            return None
        there = self.mark_used(tree.digest) if mark else (self.root / "trees" / tree.digest / MANIFEST).is_file()
        return tree if there else None

    def mark_used(self, tree: str) -> bool:
        """Note that a tree is in use now; false when it is not there."""
        return _touch(self.root / "trees" / tree / MANIFEST)

    def blob_path(self, sha256: str) -> Path:
        """Give where a content lies."""
        return self.root / "blobs" / "sha256" / sha256[:2] / sha256

    def find_blob(self, key: str, size: int, published: str) -> str:
        """Give the digest of a pinned file's content if the cache holds it; ``published`` is the source's, or empty."""
        recorded = published or self.read_pin(key)
        if not recorded:
            return ""
        path = self.blob_path(recorded)
        return recorded if _has_size(path, size) and _touch(path) else ""

    def read_pin(self, key: str) -> str:
        """Give the digest that a pinned file had; empty when it never came."""
        try:
            return self._pin_path(key).read_text()
        except FileNotFoundError:
            return ""

    def _pin_path(self, key: str) -> Path:
        return self.root / "pins" / key[:2] / key

    def open_partial(self, key: str, size: int) -> Partial:
        """Open a file's partial download, with what is there of it."""
        return Partial(self.root / "partials", key, size)

    def keep_blob(self, partial: Partial, sha256: str, key: str) -> None:
        """Turn a verified partial into a blob: on the volume first, under its name then."""
        path = self.blob_path(sha256)
        os.fchmod(partial.fd, 0o444)
        os.fsync(partial.fd)
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.exists():
            partial.path.replace(path)
        # Neither the new name nor the pin is worth a sync: one that a power failure takes costs another fetch.
        self._write(self._pin_path(key), sha256.encode(), sync=False)
        partial.forget()

    def publish_tree(self, files: list[TreeFile], plan_digest: str, proof: str) -> Tree:
        """Publish the files as a tree by one rename; another worker's same tree is as good."""
        manifest = render_manifest(files)
        tree = Tree(digest=digest_of(manifest), bytes=sum(file.size for file in files), proof=proof)
        target = self.root / "trees" / tree.digest
        if not (target / MANIFEST).is_file():
            self._build_tree(files, manifest, target)
        self._write(self.root / "plans" / f"{plan_digest}.tree", tree.model_dump_json().encode())
        return tree

    def _build_tree(self, files: list[TreeFile], manifest: bytes, target: Path) -> None:
        work = self.tmp / uuid4().hex
        work.mkdir()
        try:
            for file in files:
                path = work / file.path
                path.parent.mkdir(parents=True, exist_ok=True)
                _link(self.blob_path(file.sha256), path)
            self._write(work / MANIFEST, manifest)
            for folder in [work, *(path for path in work.rglob("*") if path.is_dir())]:
                folder.chmod(0o755)
                _sync_folder(folder)
            _rename_once(work, target)
            _sync_folder(target.parent)
        finally:
            shutil.rmtree(work, ignore_errors=True)

    def check_room(self, missing: int, total: int) -> None:
        """Check before the first byte that ``missing`` bytes more fit; ``total`` are the model's, for the message.

        Raises:
            InsufficientDisk: they do not.
        """
        if not missing:
            return
        free, needed = self.count_free_bytes(), missing + SPARE_BYTES
        if needed > free:
            raise InsufficientDisk(
                f"the cache volume at {self.root} has {free} bytes free and needs {needed} more for weights of {total} "
                f"bytes: remove trees that nothing serves, or enlarge the volume"
            )
        if self._max_bytes is not None and (left := self._max_bytes - self.count_used_bytes()) < missing:
            raise InsufficientDisk(
                f"the cache at {self.root} has {max(left, 0)} bytes left of PLNT_CACHE_MAX_BYTES {self._max_bytes} "
                f"and needs {missing} more for weights of {total} bytes: raise it, or remove trees that nothing serves"
            )

    def measure_left(self) -> int:
        """Give the bytes that may still be written: the volume's, or fewer where there is a bound."""
        free = self.count_free_bytes()
        return free if self._max_bytes is None else min(free, max(0, self._max_bytes - self.count_used_bytes()))

    def explain_full(self, missing: int, total: int) -> InsufficientDisk:
        """Give the error for a volume that filled up while ``missing`` bytes were still to come."""
        return InsufficientDisk(
            f"the cache at {self.root} filled up during the pull: {self.measure_left()} bytes are free and {missing} "
            f"more are needed for weights of {total} bytes: remove trees that nothing serves, or enlarge the volume; "
            f"what is there stays and is not fetched again"
        )

    def count_free_bytes(self) -> int:
        """Count what the volume has left for this process, in bytes."""
        volume = os.statvfs(self.root)
        return volume.f_bavail * volume.f_frsize

    def measure_room(self) -> tuple[int, int]:
        """Give capacity and use in bytes: the bound's if there is one, else the volume's."""
        if self._max_bytes is not None:
            return self._max_bytes, self.count_used_bytes()
        volume = os.statvfs(self.root)
        used = (volume.f_blocks - volume.f_bfree) * volume.f_frsize
        return used + volume.f_bavail * volume.f_frsize, used

    def count_used_bytes(self) -> int:
        """Count what blobs and partials take on the volume, in bytes."""
        paths = [*(self.root / "blobs").rglob("*"), *(self.root / "partials").glob("*.data")]
        return sum(_allocated(path) for path in paths)

    def write_note(self, name: str, text: bytes) -> None:
        """Write a small file beside the folders, whole or not at all."""
        self._write(self.root / name, text)

    def _write(self, path: Path, data: bytes, *, sync: bool = True) -> None:
        """Put a small file in place at once and whole."""
        work = self.tmp / uuid4().hex
        path.parent.mkdir(parents=True, exist_ok=True)
        with work.open("wb") as file:
            file.write(data)
            file.flush()
            os.fchmod(file.fileno(), 0o444)
            if sync:
                os.fsync(file.fileno())
        work.replace(path)


def _touch(path: Path) -> bool:
    """Set a file's time to now, which is how the cache knows what is in use; false when it is not there."""
    try:
        os.utime(path)
    except FileNotFoundError:
        return False
    return True


def _has_size(path: Path, size: int) -> bool:
    try:
        return path.stat().st_size == size
    except FileNotFoundError:
        return False


def _allocated(path: Path) -> int:
    try:
        status = path.stat()
    except FileNotFoundError:
        return 0
    return 0 if path.is_dir() else status.st_blocks * 512


def _rename_once(work: Path, target: Path) -> None:
    """Move a finished tree to its name, unless another worker's same tree has it."""
    try:
        work.rename(target)
    except OSError as error:
        if error.errno not in {errno.EEXIST, errno.ENOTEMPTY}:
            raise


def _link(blob: Path, path: Path) -> None:
    """Link a blob into a tree.

    Where the volume has no hard links the file is copied: a symbolic link would lead out of the tree's folder,
    which is all that runtime pods mount.
    """
    try:
        os.link(blob, path)
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        shutil.copyfile(blob, path)
        path.chmod(0o444)


def _sync_folder(folder: Path) -> None:
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    except OSError as error:
        # Some network file systems cannot; their renames are synchronous.
        if error.errno != errno.EINVAL:
            raise
    finally:
        os.close(fd)
