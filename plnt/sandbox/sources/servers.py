"""Builds fake-gcs-server and the CNCF registry from their own pinned Go module, only when sources are asked for."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from plnt.sandbox import build, toolchain
from plnt.sandbox.build import ServersDamaged, Target
from plnt.sandbox.report import Reporter

MODULE = "sources"
TARGETS = (
    Target("fake-gcs-server", "github.com/fsouza/fake-gcs-server", {}, MODULE),
    Target("registry", "github.com/distribution/distribution/v3/cmd/registry", {}, MODULE),
)


@dataclass(frozen=True, slots=True)
class SourceServers:
    """A folder of both binaries."""

    folder: Path


def compute_digest() -> str:
    """Compute the name under which a build is kept."""
    digest = hashlib.sha256()
    for name in ("go.mod", "go.sum"):
        digest.update((build.module_dir() / MODULE / name).read_bytes())
    facts = [[t.name, t.package, t.linker_flags, t.tags] for t in TARGETS]
    digest.update(json.dumps([build.FLAGS, facts]).encode())
    return digest.hexdigest()[:16]


def find_source_servers(environ: Mapping[str, str]) -> SourceServers | None:
    """Find the given or the cached servers; none when they have to be built.

    Raises:
        ServersDamaged: the folder in ``PLNT_SANDBOX_BIN`` lacks a file.
    """
    given = environ.get("PLNT_SANDBOX_BIN")
    if given:
        return _take_given(Path(given).absolute())
    home = _home(environ)
    return SourceServers(home / "bin") if build.verify_sums(home) else None


def provide_source_servers(environ: Mapping[str, str], reporter: Reporter) -> SourceServers:
    """Give the servers, building first what is missing.

    Raises:
        BuildFailed: Go could not build one.
        ServersDamaged: the folder in ``PLNT_SANDBOX_BIN`` lacks a file.
    """
    found = find_source_servers(environ)
    if found is not None:
        return found
    home = _home(environ)
    (home / "bin").mkdir(parents=True, exist_ok=True)
    with build.locked(home / ".lock", reporter):
        if not build.verify_sums(home):
            go = toolchain.provide_go(build.module_dir(), build.cache_dir(environ), environ, reporter.say)
            sums = build.build_missing(home, go, TARGETS, environ, reporter, "4 to 5 minutes")
            build.write_sums(home / build.SUMS, sums)
    return SourceServers(home / "bin")


def _home(environ: Mapping[str, str]) -> Path:
    return build.cache_dir(environ) / MODULE / compute_digest()


def _take_given(folder: Path) -> SourceServers:
    missing = [target.name for target in TARGETS if not (folder / target.name).is_file()]
    if missing:
        raise ServersDamaged(f"PLNT_SANDBOX_BIN={folder} lacks {', '.join(missing)}; add them or unset the variable")
    return SourceServers(folder)
