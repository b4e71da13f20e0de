"""Builds fake-gcs-server and the CNCF registry from their own pinned Go module, only when sources are asked for."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from plnt.sandbox.build import Target
from plnt.sandbox.report import Reporter
from plnt.sandbox.server_set import ServerSet

MODULE = "sources"
SET = ServerSet(
    name=MODULE,
    modules=(MODULE,),
    targets=(
        Target("fake-gcs-server", "github.com/fsouza/fake-gcs-server", {}, MODULE),
        Target("registry", "github.com/distribution/distribution/v3/cmd/registry", {}, MODULE),
    ),
    expected="4 to 5 minutes",
)


@dataclass(frozen=True, slots=True)
class SourceServers:
    """A folder of both binaries."""

    folder: Path


def find_source_servers(environ: Mapping[str, str]) -> SourceServers | None:
    """Find the given or the cached servers; none when they have to be built.

    Raises:
        ServersDamaged: the folder in ``PLNT_SANDBOX_BIN`` lacks a file.
    """
    found = SET.find(environ)
    return None if found is None else SourceServers(found.binaries)


def provide_source_servers(environ: Mapping[str, str], reporter: Reporter) -> SourceServers:
    """Give the servers, building first what is missing.

    Raises:
        BuildFailed: Go could not build one.
        ServersDamaged: the folder in ``PLNT_SANDBOX_BIN`` lacks a file.
    """
    return SourceServers(SET.provide(environ, reporter).binaries)
