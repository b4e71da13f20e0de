"""Where a pod runs: what all pods of the stand-in share, and what all containers of a pod share."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import aiohttp

from plnt.clients.kube import Kube, Object
from plnt.sandbox.kubelet.control import Control
from plnt.sandbox.kubelet.events import Events


def stamp() -> str:
    """Give the time as Kubernetes writes it."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


@dataclass(frozen=True, slots=True)
class Shared:
    """What all pods of the stand-in share."""

    kube: Kube
    session: aiohttp.ClientSession
    """Executes probes."""
    events: Events
    state: Path
    control: Callable[[], Control]
    backoff_seconds: float
    process_env: Mapping[str, str]
    """Variables of every process, below the container's own."""

    @property
    def folder(self) -> Path:
        """What the stand-in keeps."""
        return self.state / "kubelet"

    @property
    def processes(self) -> Path:
        """Records of running processes."""
        return self.folder / "processes"

    @property
    def loads(self) -> Path:
        """One line per model that an engine loaded."""
        return self.folder / "loads.jsonl"


@dataclass(slots=True)
class PodSite:
    """What the containers of one pod share."""

    shared: Shared
    pod: Object
    """The pod as the API server gave it last."""
    address: str
    listen: str
    changed: Callable[[], None]
    """Says that there is something to report."""
    volumes: dict[str, Path] = field(default_factory=dict)

    @property
    def uid(self) -> str:
        """The pod's uid."""
        return str(self.pod["metadata"]["uid"])

    @property
    def name(self) -> str:
        """The pod's name."""
        return str(self.pod["metadata"]["name"])

    @property
    def namespace(self) -> str:
        """The pod's namespace."""
        return str(self.pod["metadata"]["namespace"])

    @property
    def labels(self) -> Mapping[str, str]:
        """The pod's labels."""
        return self.pod["metadata"].get("labels") or {}

    @property
    def grace_seconds(self) -> int:
        """Grace period of its containers."""
        return int(self.pod["spec"].get("terminationGracePeriodSeconds", 30))

    @property
    def folder(self) -> Path:
        """The pod's own folder."""
        return self.shared.folder / "pods" / self.uid

    def event(self, kind: str, reason: str, message: str) -> None:
        """Record an event on the pod."""
        self.shared.events.record(self.pod, kind, reason, message)
