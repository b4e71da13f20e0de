"""Takes the files of a model out of verified archives, into the cache's blobs."""

import hashlib
import json
import threading
from collections.abc import Sequence
from pathlib import Path

from plnt.clients.weights.cache import Cache
from plnt.clients.weights.overlay import Entry, Removal, covers, open_archive, walk
from plnt.clients.weights.tar_reader import ArchiveFault, TarReader
from plnt.errors import SourceUnavailable, SpecInvalid, WeightsNotFound
from plnt.model import weight_files
from plnt.model.file_choice import choose_files, drop_excluded, may_be_chosen
from plnt.model.pull_plan import MAX_FILES, MAX_TOTAL_BYTES, PlannedFile, PullPlan, TreeFile, check_names, digest_of

_CHUNK = 1 << 20


class Unpacker:
    """Unpacks the archives of one plan. `run` blocks; setting ``stop`` from another thread ends it soon."""

    def __init__(self, cache: Cache, plan: PullPlan) -> None:
        self._cache, self._plan = cache, plan
        self._taken = 0
        self.stop = threading.Event()

    def run(self, plain: Sequence[TreeFile]) -> list[TreeFile]:
        """Give the tree's files: the plain ones, and what is chosen of the archives, which lie in the cache.

        Raises:
            SpecInvalid: an archive is hostile or broken.
            WeightsNotFound: together they are no model.
        """
        found: dict[str, TreeFile] = {}
        names: dict[str, int] = {}
        for archive in (file for file in self._plan.files if file.unpack):
            self._unpack(archive, found, names)
        files = {**found, **{file.path: file for file in plain}}
        chosen = self._choose(files, {**names, **{file.path: file.size for file in plain}})
        for file in chosen:
            self._check_structure(file)
        return chosen

    def forget_archives(self) -> None:
        """Remove the archives from the cache: what was taken out of them lies there."""
        for archive in (file for file in self._plan.files if file.unpack):
            self._cache.blob_path(archive.sha256).unlink(missing_ok=True)

    def _unpack(self, archive: PlannedFile, found: dict[str, TreeFile], names: dict[str, int]) -> None:
        path = self._cache.blob_path(archive.sha256)
        try:
            with path.open("rb") as stream:
                reader = open_archive(stream, archive.unpack)
                for change in walk(reader, archive.strip):
                    if isinstance(change, Removal):
                        for name in [name for name in names if covers(change, name)]:
                            del names[name]
                            found.pop(name, None)
                        continue
                    names[change.path] = change.size
                    if len(names) > MAX_FILES:
                        raise ArchiveFault(f"and others hold more than {MAX_FILES} files")
                    found.pop(change.path, None)
                    if may_be_chosen(change.path, change.size, self._plan.globs):
                        found[change.path] = self._take(change, reader, archive)
        except FileNotFoundError as error:
            raise SourceUnavailable(f"{path.name} left the cache while it was unpacked") from error
        except ArchiveFault as fault:
            raise SpecInvalid(f"{self._plan.source}: archive {archive.path} {fault}") from fault

    def _take(self, entry: Entry, reader: TarReader, archive: PlannedFile) -> TreeFile:
        """Put a member into the cache; one that is there from an earlier attempt is not written again."""
        key = digest_of(json.dumps([archive.sha256, archive.strip, entry.path]).encode())
        there = self._cache.find_blob(key, entry.size, "")
        if there:
            return TreeFile(path=entry.path, size=entry.size, sha256=there)
        self._taken += entry.size
        if self._taken > MAX_TOTAL_BYTES:
            raise ArchiveFault(f"holds more than {MAX_TOTAL_BYTES} bytes")
        self._cache.check_room(entry.size, self._plan.bytes)
        partial = self._cache.open_partial(key, entry.size)
        digest, at = hashlib.sha256(), 0
        try:
            while data := reader.read(_CHUNK):
                if self.stop.is_set():
                    raise SourceUnavailable("the pull was stopped while it unpacked an archive")
                digest.update(data)
                partial.write(memoryview(data), at)
                at += len(data)
            self._cache.keep_blob(partial, digest.hexdigest(), key)
        finally:
            partial.close()
            partial.forget()
        return TreeFile(path=entry.path, size=entry.size, sha256=digest.hexdigest())

    def _choose(self, files: dict[str, TreeFile], names: dict[str, int]) -> list[TreeFile]:
        where, globs = self._plan.source, self._plan.globs
        sizes = drop_excluded(names, globs)
        check_names(list(sizes), where)
        index = None
        if weight_files.INDEX in sizes:
            index = weight_files.parse_json_object(
                self._path(files[weight_files.INDEX]).read_bytes(), "the index", where
            )
        choice = choose_files(sizes, index, globs, where)
        weight_files.check_side_files(choice.side, where)
        chosen = sorted({*choice.side, *choice.weights})
        missing = next((name for name in chosen if name not in files), "")
        if missing:
            raise WeightsNotFound(
                f"{where}: {missing} could not be taken from its archive: push it as a layer of its own"
            )
        return [files[name] for name in chosen]

    def _path(self, file: TreeFile) -> Path:
        return self._cache.blob_path(file.sha256)

    def _check_structure(self, file: TreeFile) -> None:
        with self._path(file).open("rb") as data:
            first = data.read(weight_files.MAX_POINTER_BYTES)
            weight_files.check_first_bytes(first, file.path, self._plan.source)
            if file.path.endswith(".safetensors"):
                length = weight_files.count_header_bytes(first, file.size, file.path, self._plan.source)
                data.seek(8)
                weight_files.check_safetensors(data.read(length), file.size, file.path, self._plan.source)
