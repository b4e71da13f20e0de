"""What capacity decisions need of nodes and pods, read from their manifests."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from plnt.model.message import Message
from plnt.model.messages import Toleration
from plnt.model.quantity import parse_quantity

RELEASE_LABEL = "app.kubernetes.io/instance"
"""Label of a pod that holds its Helm release's name."""

_KEEPS_AWAY = frozenset({"NoSchedule", "NoExecute"})
_PASSING_TAINTS = "node.kubernetes.io/"
"""Taints that say how a node is at the moment, not what it is for."""

Manifest = Mapping[str, Any]


class Taint(Message):
    """A taint that keeps pods away."""

    key: str
    value: str = ""
    effect: str

    @property
    def passing(self) -> bool:
        """Whether the taint is about the node's condition and goes with it."""
        return self.key.startswith(_PASSING_TAINTS)


class Node(Message):
    """A node; ``allocatable`` in whole units, bytes for memory."""

    name: str
    usable: bool
    """Ready, not cordoned and not being deleted."""
    labels: dict[str, str] = {}
    taints: list[Taint] = []
    allocatable: dict[str, int] = {}


class Pod(Message):
    """A pod that has not ended."""

    namespace: str
    release: str = ""
    node: str = ""
    """Node that it is bound to; empty = none yet."""
    nominated: str = ""
    """Node that the scheduler is making room on for it; empty = none."""
    terminating: bool = False
    requests: dict[str, int] = {}


def read_node(manifest: Manifest) -> Node:
    """Read a node."""
    meta, spec, status = manifest["metadata"], manifest.get("spec", {}), manifest.get("status", {})
    ready = any(c["type"] == "Ready" and c["status"] == "True" for c in status.get("conditions") or [])
    return Node(
        name=meta["name"],
        usable=ready and not spec.get("unschedulable") and "deletionTimestamp" not in meta,
        labels=meta.get("labels") or {},
        taints=[Taint.model_validate(t) for t in spec.get("taints") or [] if t["effect"] in _KEEPS_AWAY],
        allocatable={key: math.floor(parse_quantity(text)) for key, text in (status.get("allocatable") or {}).items()},
    )


def read_pod(manifest: Manifest) -> Pod | None:
    """Read a pod; none when it has ended and holds nothing any more."""
    meta, spec, status = manifest["metadata"], manifest["spec"], manifest.get("status", {})
    if status.get("phase") in {"Succeeded", "Failed"}:
        return None
    return Pod(
        namespace=meta["namespace"],
        release=(meta.get("labels") or {}).get(RELEASE_LABEL, ""),
        node=spec.get("nodeName", ""),
        nominated=status.get("nominatedNodeName", ""),
        terminating="deletionTimestamp" in meta,
        requests=_sum_requests(spec),
    )


def tolerates(tolerations: Sequence[Toleration], taint: Taint) -> bool:
    """Whether a pod with ``tolerations`` may run in spite of ``taint``."""
    return any(
        t.key == taint.key
        and (t.operator == "Exists" or t.value == taint.value)
        and (not t.effect or t.effect == taint.effect)
        for t in tolerations
    )


def _sum_requests(spec: Manifest) -> dict[str, int]:
    """Give what the scheduler counts for a pod.

    The greater of what runs together at the end (containers and sidecars) and of what each init container needs
    beside the sidecars that started before it, plus overhead. Sidecars are init containers that restart.
    """
    together: dict[str, int] = {}
    most: dict[str, int] = {}
    for container in spec.get("initContainers") or []:
        wanted = _requests_of(container)
        if container.get("restartPolicy") == "Always":
            together = _add(together, wanted)
            most = _greater(most, together)
        else:
            most = _greater(most, _add(together, wanted))
    for container in spec.get("containers") or []:
        together = _add(together, _requests_of(container))
    overhead = {key: math.ceil(parse_quantity(text)) for key, text in (spec.get("overhead") or {}).items()}
    return _add(_greater(most, together), overhead)


def _requests_of(container: Manifest) -> dict[str, int]:
    resources = container.get("resources") or {}
    asked = {**(resources.get("limits") or {}), **(resources.get("requests") or {})}
    return {key: math.ceil(parse_quantity(text)) for key, text in asked.items()}


def _add(one: dict[str, int], other: dict[str, int]) -> dict[str, int]:
    return {key: one.get(key, 0) + other.get(key, 0) for key in one.keys() | other.keys()}


def _greater(one: dict[str, int], other: dict[str, int]) -> dict[str, int]:
    return {key: max(one.get(key, 0), other.get(key, 0)) for key in one.keys() | other.keys()}
