"""How many GPUs are free, and whether the first in line fits.

The scheduler stays the arbiter: this only says when asking it makes sense. What is taken: every pod on a node that
has not ended, also one that is terminating, and every pod that the scheduler nominated for a node. Then the pods
that leases will still bring are packed, largest first, each on the node that it leaves the least room on; what
remains is for the head of the line.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from plnt.model.messages import Capacity, CountFree, LeaseCount
from plnt.model.node import Node, Pod, tolerates

PODS = "pods"
"""Resource name under which a node lists how many pods it takes."""


@dataclass(slots=True)
class Room:
    """What is left on one node; never below 0, even where devices failed under running pods."""

    node: Node
    units: int
    pods: int

    def slots(self, size: int) -> int:
        """Give how many pods of ``size`` units fit."""
        return min(self.units // size, self.pods)

    def take(self, count: int, size: int) -> None:
        """Put ``count`` pods of ``size`` units here."""
        self.units -= count * size
        self.pods -= count


class Rooms:
    """What is left of each resource on each usable node, while leases are packed."""

    def __init__(self, nodes: Iterable[Node], pods: Sequence[Pod]) -> None:
        self._nodes = [node for node in nodes if node.usable]
        self._pods = pods
        self._by_resource: dict[str, list[Room]] = {}

    def place(self, lease: LeaseCount, pods: int) -> int:
        """Place up to ``pods`` pods of a lease; gives how many found room."""
        size, left = lease.gpus_per_pod, pods
        for room in sorted(self.reachable(lease), key=lambda room: (room.units, room.node.name)):
            here = min(left, room.slots(size))
            room.take(here, size)
            left -= here
        return pods - left

    def reachable(self, lease: LeaseCount) -> list[Room]:
        """Give the nodes that a lease's pods may run on."""
        if lease.resource_name not in self._by_resource:
            self._by_resource[lease.resource_name] = self._measure(lease.resource_name)
        return [room for room in self._by_resource[lease.resource_name] if accepts(room.node, lease)]

    def _measure(self, resource: str) -> list[Room]:
        taken: Counter[str] = Counter()
        count: Counter[str] = Counter()
        for pod in self._pods:
            where = pod.node or pod.nominated
            taken[where] += pod.requests.get(resource, 0)
            count[where] += 1
        return [
            Room(
                node,
                units=max(0, node.allocatable[resource] - taken[node.name]),
                pods=max(0, node.allocatable.get(PODS, 0) - count[node.name]),
            )
            for node in self._nodes
            if resource in node.allocatable
        ]


def accepts(node: Node, lease: LeaseCount) -> bool:
    """Whether a node's labels and taints let a lease's pods in."""
    return lease.node_selector.items() <= node.labels.items() and all(
        tolerates(lease.tolerations, taint) for taint in node.taints
    )


def count_capacity(
    request: CountFree,
    nodes: Iterable[Node],
    pods: Sequence[Pod],
    *,
    closed: Collection[str] = (),
    uncounted: Collection[str] = (),
) -> Capacity:
    """Answer a line's question.

    ``closed`` are the owners whose run has ended: their leases hold nothing. ``uncounted`` are resources that only
    device classes serve: nodes do not say how many they have, so the head goes on as soon as no lease waits.
    """
    rooms = Rooms(nodes, pods)
    live = [lease for lease in request.leases if lease.workflow_id not in closed]
    owed = 0
    for lease in sorted(live, key=lambda lease: -lease.gpus_per_pod):
        missing = max(0, lease.pods - _count(pods, lease, placed=True))
        owed += (missing - rooms.place(lease, missing)) * lease.gpus_per_pod
    head = request.head
    asker = head or next(iter(live), None)
    left = sum(room.units for room in rooms.reachable(asker)) if asker else 0
    return Capacity(
        bound={lease.workflow_id: _count(pods, lease, placed=False) for lease in request.leases},
        closed=sorted(closed),
        free=max(0, left - owed),
        head_fits=head is not None
        and not owed
        and head.workflow_id not in closed
        and (head.resource_name in uncounted or rooms.place(head, head.pods) == head.pods),
    )


def _count(pods: Sequence[Pod], lease: LeaseCount, *, placed: bool) -> int:
    """Count a release's pods that are bound, or with ``placed`` also those nominated; leaving ones are replaced."""
    return sum(
        pod.namespace == lease.namespace
        and pod.release == lease.release
        and not pod.terminating
        and bool(pod.node or (placed and pod.nominated))
        for pod in pods
    )
