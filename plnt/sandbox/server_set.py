"""Servers that only some sandboxes need: each set is built when it is asked for, and kept by a digest of its own."""

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from plnt.sandbox import build, toolchain
from plnt.sandbox.build import ServersDamaged, Target
from plnt.sandbox.report import Reporter

Fetch = Callable[[Path, Path, Mapping[str, str]], None]
"""Puts files into a folder; takes it, Go and the environment."""


@dataclass(frozen=True, slots=True)
class Found:
    """Where the binaries of a set lie, and the files beside them."""

    binaries: Path
    files: Path


@dataclass(frozen=True, slots=True)
class ServerSet:
    """Binaries from pinned Go modules.

    ``modules`` are the modules' subfolders, ``expected`` is how long the first build takes, for people. ``fetch``
    gets ``files``; ``facts`` are what these depend on beyond the modules.
    """

    name: str
    modules: tuple[str, ...]
    targets: tuple[Target, ...]
    expected: str
    files: tuple[str, ...] = ()
    facts: tuple[Any, ...] = ()
    fetch: Fetch | None = None

    def compute_digest(self) -> str:
        """Compute the name under which a build is kept."""
        digest = hashlib.sha256()
        for module in self.modules:
            for name in ("go.mod", "go.sum"):
                digest.update((build.module_dir() / module / name).read_bytes())
        targets = [[t.name, t.package, t.linker_flags, t.tags] for t in self.targets]
        digest.update(json.dumps([build.FLAGS, targets, *self.facts]).encode())
        return digest.hexdigest()[:16]

    def find(self, environ: Mapping[str, str]) -> Found | None:
        """Find the given or the cached servers; none when they have to be built.

        Raises:
            ServersDamaged: the folder in ``PLNT_SANDBOX_BIN`` lacks a file.
        """
        given = environ.get("PLNT_SANDBOX_BIN")
        if given:
            return self._take_given(Path(given).absolute())
        home = self._home(environ)
        return Found(home / "bin", home) if build.verify_sums(home) else None

    def provide(self, environ: Mapping[str, str], reporter: Reporter) -> Found:
        """Give the servers, building first what is missing.

        Raises:
            BuildFailed: Go could not build one, or a file could not be had.
            ServersDamaged: the folder in ``PLNT_SANDBOX_BIN`` lacks a file.
        """
        found = self.find(environ)
        if found is not None:
            return found
        home = self._home(environ)
        (home / "bin").mkdir(parents=True, exist_ok=True)
        with build.locked(home / ".lock", reporter):
            if not build.verify_sums(home):
                self._build(home, environ, reporter)
        return Found(home / "bin", home)

    def _build(self, home: Path, environ: Mapping[str, str], reporter: Reporter) -> None:
        go = toolchain.provide_go(build.module_dir(), build.cache_dir(environ), environ, reporter.say)
        sums = build.build_missing(home, go, self.targets, environ, reporter, self.expected)
        if self.fetch is not None:
            self.fetch(home, go, environ)
        sums.update({name: build.sum_file(home / name) for name in self.files})
        build.write_sums(home / build.SUMS, sums)

    def _home(self, environ: Mapping[str, str]) -> Path:
        return build.cache_dir(environ) / self.name / self.compute_digest()

    def _take_given(self, folder: Path) -> Found:
        names = (*(target.name for target in self.targets), *self.files)
        missing = [name for name in names if not (folder / name).is_file()]
        if missing:
            lacks = ", ".join(missing)
            raise ServersDamaged(f"PLNT_SANDBOX_BIN={folder} lacks {lacks}; add them or unset the variable")
        return Found(folder, folder)
