"""Builds Prometheus and prometheus-adapter from their own pinned Go modules, only when metrics are asked for."""

import json
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from plnt.sandbox import build, toolchain
from plnt.sandbox.build import BuildFailed, Target
from plnt.sandbox.report import Reporter
from plnt.sandbox.server_set import Found, ServerSet

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


def find_metrics_servers(environ: Mapping[str, str]) -> MetricsServers | None:
    """Find the given or the cached servers; none when they have to be built.

    Raises:
        ServersDamaged: the folder in ``PLNT_SANDBOX_BIN`` lacks a file.
    """
    found = SET.find(environ)
    return None if found is None else _servers_in(found)


def provide_metrics_servers(environ: Mapping[str, str], reporter: Reporter) -> MetricsServers:
    """Give the servers, building first what is missing.

    Raises:
        BuildFailed: Go could not build one, or the CRDs could not be downloaded.
        ServersDamaged: the folder in ``PLNT_SANDBOX_BIN`` lacks a file.
    """
    return _servers_in(SET.provide(environ, reporter))


def _servers_in(found: Found) -> MetricsServers:
    return MetricsServers(found.binaries, tuple(found.files / name for name in CRDS))


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


SET = ServerSet(
    name="metrics",
    modules=("prometheus", "adapter", "operator"),
    targets=TARGETS,
    expected="5 to 7 minutes",
    files=CRDS,
    facts=(OPERATOR, CRDS),
    fetch=_copy_crds,
)
