"""Which executables a sandbox starts and where each comes from."""

import json
import re
import shutil
import subprocess
import sysconfig
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from plnt.errors import PermanentError
from plnt.sandbox.metrics.servers import MetricsServers
from plnt.sandbox.sources.servers import SourceServers

KUBECTL_MINORS = range(36, 39)
"""kubectl is supported one minor version around the API server's, 1.37."""
TEMPORAL_AT_LEAST = (1, 9)
"""The first CLI whose dev server takes ``--sqlite-pragma`` and the signals plnt sends with a start."""
_ASK_SECONDS = 20


class ProgramMissing(PermanentError):
    """An executable is not installed."""


@dataclass(frozen=True, slots=True)
class Programs:
    """Paths of executables; ``servers`` holds those built from the pinned Go module."""

    servers: Path
    istio_crds: Path
    kubectl: Path
    temporal: Path
    weed: Path
    envoy: Path
    metrics: MetricsServers | None = None
    """Prometheus and its adapter; none = a sandbox without metrics."""
    sources: SourceServers | None = None
    """Servers of weights beside S3; none = a sandbox with S3 alone."""

    @property
    def helm(self) -> Path:
        """The helm that the deploy pool runs."""
        return self.servers / "helm"

    def server(self, name: str) -> Path:
        """Give the path of a built server."""
        return self.servers / name


def find_programs(servers: Path, istio_crds: Path, metrics: MetricsServers | None = None) -> Programs:
    """Find the rest beside this Python's scripts, or on PATH where a fitting version wins.

    Raises:
        ProgramMissing: a wheel of the ``sandbox`` extra is not installed.
    """
    return Programs(
        servers=servers,
        istio_crds=istio_crds,
        kubectl=_find("kubectl", _kubectl_fits),
        temporal=_find("temporal", _temporal_fits),
        weed=_find("weed", _never),
        envoy=_find("envoy", _never),
        metrics=metrics,
    )


def parse_version(text: str) -> tuple[int, ...]:
    """Read the first dotted number in ``text``; empty if there is none."""
    match = re.search(r"(\d+)\.(\d+)(?:\.(\d+))?", text)
    return tuple(int(part) for part in match.groups() if part) if match else ()


def _find(name: str, fits: Callable[[Path], bool]) -> Path:
    wheel = Path(sysconfig.get_path("scripts")) / name
    on_path = shutil.which(name)
    if on_path and Path(on_path) != wheel and fits(Path(on_path)):
        return Path(on_path)
    if wheel.exists():
        return wheel
    raise ProgramMissing(f"{name} is not in {wheel.parent}; install it with: pip install 'plnt[sandbox]'")


def _kubectl_fits(path: Path) -> bool:
    try:
        version = json.loads(_ask(path, ["version", "--client", "-o", "json"]))["clientVersion"]
        return int(version["minor"].rstrip("+")) in KUBECTL_MINORS
    except (ValueError, KeyError):
        return False


def _temporal_fits(path: Path) -> bool:
    return parse_version(_ask(path, ["--version"])) >= TEMPORAL_AT_LEAST


def _never(_: Path) -> bool:
    return False


def _ask(path: Path, arguments: Sequence[str]) -> str:
    try:
        done = subprocess.run([path, *arguments], capture_output=True, text=True, timeout=_ASK_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout
