"""The control file ``<state>/kubelet/control.json``: which nodes exist and what goes wrong on them.

People and tests write it; the stand-in follows within 0.3 s. Without it there are the default nodes and no faults::

    {"nodes": [{"name": "gpu-h100-a", "resources": {"nvidia.com/h100": "8"},
                "labels": {"zone": "a"}, "taints": [{"key": "nvidia.com/gpu", "effect": "NoSchedule"}]}],
     "faults": [{"namespace": "default", "matchLabels": {"plnt.work/revision": "1a2b3c4d"},
                 "fault": "crash", "afterSeconds": 2, "exitCode": 139}]}

A node has 64 cpu, 1Ti of memory and room for 110 pods unless its resources say otherwise. One that leaves the file
is deleted together with its pods. A fault holds for every pod of its namespace (empty: of all) that has its labels,
and at each new start of a container until the fault leaves the file:

* ``image``: the image cannot be pulled (asked when a pod starts; running containers are not touched);
* ``oom``: the container is killed and reported as OOMKilled, exit code 137;
* ``crash``: the container ends with ``exitCode`` (1).

``afterSeconds`` counts from the moment the container became ready; 0 (the default) means as soon as it runs, ready
or not. For a container that has been ready for longer the fault strikes at once.
"""

import fcntl
import json
import os
from collections.abc import Callable, Mapping
from enum import StrEnum
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

FILE = Path("kubelet") / "control.json"
"""The control file inside the state folder."""
_BASE = {"cpu": "64", "memory": "1Ti", "pods": "110"}


class Simulated(BaseModel):
    """What the models of the control file share."""

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)


class SimulatedNode(Simulated):
    """One node."""

    name: str = Field(min_length=1)
    resources: Mapping[str, str] = {}
    """Capacity by resource name, as Kubernetes quantities."""
    labels: Mapping[str, str] = {}
    taints: tuple[Mapping[str, Any], ...] = ()

    @property
    def capacity(self) -> dict[str, str]:
        """Capacity with what every node has."""
        return {**_BASE, **self.resources}


class FaultKind(StrEnum):
    """What can go wrong."""

    OOM = "oom"
    IMAGE = "image"
    CRASH = "crash"


class Fault(Simulated):
    """One fault and the pods that it strikes."""

    fault: FaultKind
    namespace: str = ""
    match_labels: Mapping[str, str] = Field({}, alias="matchLabels")
    after_seconds: float = Field(0, alias="afterSeconds", ge=0)
    exit_code: int = Field(1, alias="exitCode", ge=0, le=255)

    def strikes(self, namespace: str, labels: Mapping[str, str]) -> bool:
        """Tell whether a pod of these labels is struck."""
        return self.namespace in {"", namespace} and self.match_labels.items() <= labels.items()


class Control(Simulated):
    """The whole file."""

    nodes: tuple[SimulatedNode, ...] = ()
    faults: tuple[Fault, ...] = ()

    def find_fault(self, namespace: str, labels: Mapping[str, str], *kinds: FaultKind) -> Fault | None:
        """Give the first fault of these kinds that strikes the pod."""
        return next((f for f in self.faults if f.fault in kinds and f.strikes(namespace, labels)), None)

    def with_nodes(self, *nodes: SimulatedNode) -> "Control":
        """Give the control with ``nodes`` added, those of the same names replaced."""
        names = {node.name for node in nodes}
        kept = tuple(node for node in self.nodes if node.name not in names)
        return self.model_copy(update={"nodes": (*kept, *nodes)})

    def without_nodes(self, *names: str) -> "Control":
        """Give the control without the nodes named."""
        return self.model_copy(update={"nodes": tuple(node for node in self.nodes if node.name not in names)})

    def with_faults(self, *faults: Fault) -> "Control":
        """Give the control with ``faults`` added."""
        return self.model_copy(update={"faults": (*self.faults, *faults)})

    def without_faults(self, namespace: str) -> "Control":
        """Give the control without the faults of a namespace."""
        return self.model_copy(update={"faults": tuple(f for f in self.faults if f.namespace != namespace)})


DEFAULT = Control(
    nodes=(
        SimulatedNode(name="gpu-h100-a", resources={"nvidia.com/h100": "8"}),
        SimulatedNode(name="gpu-a100-a", resources={"nvidia.com/a100": "8"}),
        SimulatedNode(name="gpu-a10-a", resources={"nvidia.com/a10": "4"}),
    )
)


def load(state: Path) -> Control:
    """Read the control file of the state folder; the default nodes when there is none.

    Raises:
        ValueError: it is not of this form.
    """
    path = state / FILE
    return Control.model_validate_json(path.read_text()) if path.exists() else DEFAULT


def save(state: Path, control: Control) -> None:
    """Write the control file by rename, so that no reader sees half of it."""
    path = state / FILE
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    draft.write_text(json.dumps(control.model_dump(mode="json", by_alias=True), indent=2) + "\n")
    draft.replace(path)


def change(state: Path, how: Callable[[Control], Control]) -> Control:
    """Read, change and write the control file, one writer at a time; gives the new content."""
    lock = state / FILE.with_suffix(".lock")
    lock.parent.mkdir(parents=True, exist_ok=True)
    with lock.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        control = how(load(state))
        save(state, control)
    return control
