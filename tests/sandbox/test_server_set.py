"""Servers that are built only when they are asked for."""

import io
import json
from pathlib import Path

import pytest

from plnt.sandbox import build
from plnt.sandbox.build import ServersDamaged
from plnt.sandbox.metrics import servers as metrics
from plnt.sandbox.report import Reporter
from plnt.sandbox.server_set import Found, ServerSet
from plnt.sandbox.sources import servers as sources

SETS = [pytest.param(one, id=one.name) for one in (metrics.SET, sources.SET)]


def names_of(servers: ServerSet) -> list[str]:
    return [*(target.name for target in servers.targets), *servers.files]


@pytest.mark.parametrize("servers", SETS)
def test_given_folder_is_used_as_it_is_or_refused_with_what_it_lacks(servers: ServerSet, tmp_path: Path) -> None:
    for name in names_of(servers):
        (tmp_path / name).write_text(name)
    environ = {"PLNT_SANDBOX_BIN": str(tmp_path)}
    assert servers.find(environ) == Found(tmp_path, tmp_path)
    lacking = names_of(servers)[-1]
    (tmp_path / lacking).unlink()
    with pytest.raises(ServersDamaged, match=f"lacks {lacking}"):
        servers.find(environ)


@pytest.mark.parametrize("servers", SETS)
def test_build_is_found_again_until_a_file_of_it_changes(servers: ServerSet, tmp_path: Path) -> None:
    environ = {"XDG_CACHE_HOME": str(tmp_path)}
    assert servers.find(environ) is None
    home = tmp_path / "plnt" / servers.name / servers.compute_digest()
    (home / "bin").mkdir(parents=True)
    files = [*(f"bin/{target.name}" for target in servers.targets), *servers.files]
    for name in files:
        (home / name).write_text(name)
    (home / build.SUMS).write_text(json.dumps({name: build.sum_file(home / name) for name in files}))
    assert servers.find(environ) == Found(home / "bin", home)
    (home / files[-1]).write_text("another")
    assert servers.find(environ) is None


def test_servers_that_are_missing_are_built_with_the_files_beside_them(tmp_path: Path) -> None:
    go = tmp_path / "go"
    go.write_text(
        "#!/bin/sh\n"
        'if [ "$1" = env ]; then echo go99.0; exit; fi\n'
        f'if [ "$1" = mod ]; then echo \'{{"Dir": "{tmp_path}/operator"}}\'; exit; fi\n'
        'while [ "$1" != -o ]; do shift; done\n'
        'echo built >> "$2"\n'
    )
    go.chmod(0o755)
    crds = tmp_path / "operator" / metrics._CRDS_IN_OPERATOR
    crds.mkdir(parents=True)
    for name in metrics.CRDS:
        (crds / name).write_text(name)
    environ = {"XDG_CACHE_HOME": str(tmp_path), "PATH": f"{tmp_path}:/usr/bin:/bin"}
    found = metrics.provide_metrics_servers(environ, Reporter(io.StringIO()))
    assert [path.read_text() for path in found.crds] == list(metrics.CRDS)
    assert (found.folder / "prometheus").read_text() == "built\n"
    assert metrics.find_metrics_servers(environ) == found
