"""Builds Prometheus and prometheus-adapter from their own pinned Go modules, only when metrics are asked for."""

import hashlib
import json
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from plnt.sandbox import build, toolchain
from plnt.sandbox.build import BuildFailed, ServersDamaged, Target
from plnt.sandbox.report import Reporter

OPERATOR = "github.com/prometheus-operator/prometheus-operator@v0.85.0"
"""Module that ships the CRDs."""
CRDS = tuple(f"monitoring.coreos.com_{plural}.yaml" for plural in ("podmonitors", "prometheusrules"))
_CRDS_IN_OPERATOR = Path("example") / "prometheus-operator-crd"
TARGETS = (
    Target("prometheus", "github.com/prometheus/prometheus/cmd/prometheus", {}, "prometheus", "remove_all_sd"),
    Target("prometheus-adapter", "sigs.k8s.io/prometheus-adapter/cmd/adapter", {}, "adapter"),
)
"""Prometheus without its service discoveries, which are most of it: the feed writes files. Its web pages are not in
the Go module."""


@dataclass(frozen=True, slots=True)
class MetricsServers:
    """A folder of both binaries, and the CRDs of the Prometheus operator."""

    folder: Path
    crds: tuple[Path, ...]


def compute_digest() -> str:
    """Compute the name under which a build is kept."""
    digest = hashlib.sha256()
    for module in ("prometheus", "adapter", "operator"):
        for name in ("go.mod", "go.sum"):
            digest.update((build.module_dir() / module / name).read_bytes())
    facts = [[t.name, t.package, t.linker_flags, t.tags] for t in TARGETS]
    digest.update(json.dumps([build.FLAGS, facts, OPERATOR, CRDS]).encode())
    return digest.hexdigest()[:16]


def find_metrics_servers(environ: Mapping[str, str]) -> MetricsServers | None:
    """Find the given or the cached servers; none when they have to be built.

    Raises:
        ServersDamaged: the folder in ``PLNT_SANDBOX_BIN`` lacks a file.
    """
    given = environ.get("PLNT_SANDBOX_BIN")
    if given:
        return _take_given(Path(given).absolute())
    home = _home(environ)
    return _servers_in(home) if build.verify_sums(home) else None


def provide_metrics_servers(environ: Mapping[str, str], reporter: Reporter) -> MetricsServers:
    """Give the servers, building first what is missing.

    Raises:
        BuildFailed: Go could not build one, or the CRDs could not be downloaded.
        ServersDamaged: the folder in ``PLNT_SANDBOX_BIN`` lacks a file.
    """
    found = find_metrics_servers(environ)
    if found is not None:
        return found
    home = _home(environ)
    (home / "bin").mkdir(parents=True, exist_ok=True)
    with build.locked(home / ".lock", reporter):
        if not build.verify_sums(home):
            go = toolchain.provide_go(build.module_dir(), build.cache_dir(environ), environ, reporter.say)
            sums = build.build_missing(home, go, TARGETS, environ, reporter, "5 to 7 minutes")
            _copy_crds(home, go, environ)
            sums.update({name: build.sum_file(home / name) for name in CRDS})
            build.write_sums(home / build.SUMS, sums)
    return _servers_in(home)


def _home(environ: Mapping[str, str]) -> Path:
    return build.cache_dir(environ) / "metrics" / compute_digest()


def _servers_in(home: Path) -> MetricsServers:
    return MetricsServers(home / "bin", tuple(home / name for name in CRDS))


def _take_given(folder: Path) -> MetricsServers:
    missing = [name for name in (*(target.name for target in TARGETS), *CRDS) if not (folder / name).is_file()]
    if missing:
        raise ServersDamaged(f"PLNT_SANDBOX_BIN={folder} lacks {', '.join(missing)}; add them or unset the variable")
    return MetricsServers(folder, tuple(folder / name for name in CRDS))


def _copy_crds(home: Path, go: Path, environ: Mapping[str, str]) -> None:
    """Copy the CRDs out of the module, which Go checks against the sum in ``go.sum``."""
    command = [str(go), "mod", "download", "-json", OPERATOR]
    module = build.module_dir() / "operator"
    done = subprocess.run(
        command, cwd=module, env=toolchain.environment(environ), capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise BuildFailed(f"go could not download {OPERATOR}: {done.stdout}{done.stderr}")
    folder = Path(json.loads(done.stdout)["Dir"]) / _CRDS_IN_OPERATOR
    for name in CRDS:
        draft = home / f".{name}.part"
        shutil.copyfile(folder / name, draft)
        draft.replace(home / name)
