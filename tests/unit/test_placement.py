from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plnt.model.messages import Capacity, CountFree, LeaseCount, Toleration
from plnt.model.node import Node, Pod, Taint
from plnt.model.placement import Rooms, count_capacity

GPU = "nvidia.com/h100"


def node(name: str, gpus: int, **changes: Any) -> Node:
    return Node.model_validate({"name": name, "usable": True, "allocatable": {GPU: gpus, "pods": 110}} | changes)


def pod(gpus: int, node: str = "", release: str = "other", **changes: Any) -> Pod:
    known = {"namespace": "default", "release": release, "node": node, "requests": {GPU: gpus}}
    return Pod.model_validate(known | changes)


def lease(name: str, pods: int, size: int, **changes: Any) -> LeaseCount:
    known = {
        "workflow_id": name,
        "run_id": "r",
        "namespace": "default",
        "release": name,
        "pods": pods,
        "gpus_per_pod": size,
        "resource_name": GPU,
    }
    return LeaseCount.model_validate(known | changes)


def count(
    nodes: list[Node], pods: list[Pod], head: LeaseCount | None, leases: list[LeaseCount] | None = None, **more: Any
) -> Capacity:
    request = CountFree(gpu_class=GPU, leases=leases or [], head=head)
    return count_capacity(request, nodes, pods, **more)


@pytest.mark.parametrize(
    ("nodes", "pods", "free", "fits"),
    [
        pytest.param([node("a", 8)], [], 8, True, id="empty node"),
        pytest.param([node("a", 8)], [pod(6, "a")], 2, False, id="rest too small"),
        pytest.param([node("a", 2), node("b", 2)], [], 4, False, id="sum does not count, one node must hold it"),
        pytest.param([node("a", 8)], [pod(6, "a", terminating=True)], 2, False, id="terminating pod still there"),
        pytest.param([node("a", 8)], [pod(6, nominated="a")], 2, False, id="room made for a nominated pod"),
        pytest.param([node("a", 8)], [pod(6)], 8, True, id="unbound pod of somebody else"),
        pytest.param([node("a", 3)], [pod(4, "a")], 0, False, id="devices failed under a pod"),
        pytest.param([node("a", 8, usable=False)], [], 0, False, id="node not ready"),
        pytest.param([node("a", 8, allocatable={GPU: 8, "pods": 1})], [pod(0, "a")], 8, False, id="pods used up"),
        pytest.param([node("a", 8, taints=[Taint(key="x", effect="NoSchedule")])], [], 0, False, id="tainted"),
        pytest.param([node("a", 8, allocatable={"cpu": 8})], [], 0, False, id="no such resource"),
    ],
)
def test_head_fits_only_where_the_scheduler_would_put_it(
    nodes: list[Node], pods: list[Pod], free: int, fits: bool
) -> None:
    answer = count(nodes, pods, lease("head", 1, 4))
    assert (answer.free, answer.head_fits) == (free, fits)


def test_tolerated_taint_and_matching_label_let_the_head_in() -> None:
    tainted = node("a", 8, taints=[Taint(key=GPU, effect="NoSchedule")], labels={"zone": "z"})
    asked = {"tolerations": [Toleration(key=GPU)], "node_selector": {"zone": "z"}}
    assert count([tainted], [], lease("head", 2, 4, **asked)).head_fits
    assert not count([tainted], [], lease("head", 2, 4, **asked | {"node_selector": {"zone": "y"}})).head_fits


def test_unbound_pods_of_a_lease_are_taken_off_before_the_head() -> None:
    answer = count([node("a", 8)], [], lease("head", 1, 4), [lease("granted", 2, 2)])
    assert (answer.free, answer.head_fits) == (4, True)
    answer = count([node("a", 8)], [], lease("head", 1, 4), [lease("granted", 3, 2)])
    assert (answer.free, answer.head_fits) == (2, False)


def test_bound_pods_of_a_lease_are_counted_once() -> None:
    pods = [pod(2, "a", "granted"), pod(2, "a", "granted"), pod(2, "a", "granted", namespace="elsewhere")]
    answer = count([node("a", 10)], pods, lease("head", 1, 4), [lease("granted", 2, 2)])
    assert answer.bound == {"granted": 2}
    assert (answer.free, answer.head_fits) == (4, True)


def test_leaving_pod_of_a_lease_will_be_replaced() -> None:
    pods = [pod(4, "a", "granted", terminating=True)]
    answer = count([node("a", 8)], pods, lease("head", 1, 4), [lease("granted", 1, 4)])
    assert answer.bound == {"granted": 0}
    assert (answer.free, answer.head_fits) == (0, False)


def test_lease_of_a_closed_run_holds_nothing() -> None:
    answer = count([node("a", 4)], [], lease("head", 1, 4), [lease("dead", 1, 4)], closed=["dead"])
    assert answer.closed == ["dead"]
    assert answer.head_fits


def test_head_of_a_closed_run_never_fits() -> None:
    assert not count([node("a", 4)], [], lease("head", 1, 4), closed=["head"]).head_fits


def test_nobody_passes_a_lease_that_still_waits_for_room() -> None:
    nodes = [node("a", 2), node("b", 2)]
    answer = count(nodes, [], lease("head", 1, 2), [lease("granted", 1, 4)])
    assert (answer.free, answer.head_fits) == (0, False)


def test_uncounted_resource_lets_one_at_a_time_go_on() -> None:
    nodes = [node("a", 0, allocatable={"cpu": 4, "pods": 9})]
    head, granted = lease("head", 1, 4), lease("granted", 1, 4)
    assert count(nodes, [], head, uncounted={GPU}).head_fits
    assert not count(nodes, [], head, [granted], uncounted={GPU}).head_fits
    assert count(nodes, [pod(4, "a", "granted")], head, [granted], uncounted={GPU}).head_fits


def test_small_pods_leave_the_large_hole_to_the_large_pod() -> None:
    nodes = [node("a", 8), node("b", 2)]
    assert count(nodes, [], lease("head", 1, 8), [lease("granted", 1, 2)]).head_fits


def test_huge_line_entries_are_answered_at_once() -> None:
    answer = count([node("a", 8)], [], lease("head", 2**31, 8), [lease("granted", 2**31, 1)])
    assert (answer.free, answer.head_fits) == (0, False)


NODES = st.lists(st.integers(0, 8), min_size=1, max_size=4).map(
    lambda sizes: [node(f"n{i}", gpus) for i, gpus in enumerate(sizes)]
)
PODS = st.lists(st.tuples(st.integers(0, 4), st.integers(1, 8), st.booleans()), max_size=6).map(
    lambda found: [pod(gpus, f"n{i}", "granted" if own else "other") for i, gpus, own in found]
)
SIZES = st.tuples(st.integers(0, 6), st.integers(1, 8))


@given(NODES, PODS, st.lists(SIZES, max_size=3), SIZES)
def test_placement_never_overcommits(
    nodes: list[Node], pods: list[Pod], sizes: list[tuple[int, int]], head: tuple[int, int]
) -> None:
    leases = [lease(f"l{i}", pods, size) for i, (pods, size) in enumerate(sizes)]
    rooms = Rooms(nodes, pods)
    wanted = [*leases, lease("head", *head)]
    placed = sum(rooms.place(one, one.pods) * one.gpus_per_pod for one in wanted)
    taken: Counter[str] = Counter()
    for one in pods:
        taken[one.node] += one.requests[GPU]
    truly_free = {n.name: max(0, n.allocatable[GPU] - taken[n.name]) for n in nodes}
    left = {room.node.name: room.units for room in rooms.reachable(wanted[-1])}
    assert all(0 <= left[name] <= truly_free[name] for name in truly_free)
    assert sum(truly_free.values()) - sum(left.values()) == placed


@given(NODES, PODS, st.lists(SIZES, max_size=3), SIZES)
def test_granted_head_and_leases_fit_into_what_is_free(
    nodes: list[Node], pods: list[Pod], sizes: list[tuple[int, int]], head: tuple[int, int]
) -> None:
    leases = [lease(f"l{i}", pods, size) for i, (pods, size) in enumerate(sizes)]
    answer = count(nodes, pods, lease("head", *head), leases)
    owed = sum(one.pods * one.gpus_per_pod for one in leases)
    free = sum(max(0, n.allocatable[GPU] - sum(p.requests[GPU] for p in pods if p.node == n.name)) for n in nodes)
    assert answer.free == max(0, free - owed)
    assert not answer.head_fits or owed + head[0] * head[1] <= free
