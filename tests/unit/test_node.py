from typing import Any

import pytest

from plnt.model.messages import Toleration
from plnt.model.node import Taint, read_node, read_pod, tolerates

GPU = "nvidia.com/h100"


def node(ready: str = "True", **spec: Any) -> dict[str, Any]:
    return {
        "metadata": {"name": "n"},
        "spec": spec,
        "status": {
            "allocatable": {GPU: "8", "memory": "1000Gi", "cpu": "1500m"},
            "conditions": [{"type": "Ready", "status": ready}],
        },
    }


def pod(containers: list[int], init: list[tuple[int, bool]] = [], **meta: Any) -> dict[str, Any]:  # noqa: B006
    def container(gpus: int, sidecar: bool = False) -> dict[str, Any]:
        return {"resources": {"limits": {GPU: str(gpus)}}, **({"restartPolicy": "Always"} if sidecar else {})}

    return {
        "metadata": {"namespace": "default", **meta},
        "spec": {"containers": [container(n) for n in containers], "initContainers": [container(*i) for i in init]},
        "status": {"phase": "Running"},
    }


def test_allocatable_is_read_in_whole_units() -> None:
    assert read_node(node()).allocatable == {GPU: 8, "memory": 1000 * 2**30, "cpu": 1}


@pytest.mark.parametrize(
    ("manifest", "usable"),
    [(node(), True), (node("Unknown"), False), (node("False"), False), (node(unschedulable=True), False)],
)
def test_node_is_usable_only_when_ready_and_not_cordoned(manifest: dict[str, Any], usable: bool) -> None:
    assert read_node(manifest).usable is usable


def test_node_under_deletion_is_not_usable() -> None:
    manifest = node()
    manifest["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    assert not read_node(manifest).usable


def test_taints_that_only_discourage_are_left_out() -> None:
    taints = [{"key": "a", "effect": "PreferNoSchedule"}, {"key": "b", "effect": "NoExecute"}]
    assert [taint.key for taint in read_node(node(taints=taints)).taints] == ["b"]


@pytest.mark.parametrize(
    ("containers", "init", "gpus"),
    [
        pytest.param([2, 1], [], 3, id="containers run together"),
        pytest.param([1], [(4, False)], 4, id="a large init container decides"),
        pytest.param([1], [(4, False), (2, True)], 4, id="a sidecar after it does not add to it"),
        pytest.param([1], [(2, True), (4, False)], 6, id="a sidecar before it does"),
        pytest.param([3], [(2, True), (1, False)], 5, id="sidecars run beside the containers"),
    ],
)
def test_pod_requests_what_the_scheduler_counts(containers: list[int], init: list[tuple[int, bool]], gpus: int) -> None:
    read = read_pod(pod(containers, init))
    assert read is not None
    assert read.requests[GPU] == gpus


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_pod_that_has_ended_holds_nothing(phase: str) -> None:
    manifest = pod([1])
    manifest["status"]["phase"] = phase
    assert read_pod(manifest) is None


def test_terminating_pod_still_counts() -> None:
    read = read_pod(pod([1], deletionTimestamp="2026-01-01T00:00:00Z"))
    assert read is not None
    assert read.terminating


@pytest.mark.parametrize(
    ("toleration", "tolerated"),
    [
        (Toleration(key="k"), True),
        (Toleration(key="other"), False),
        (Toleration(key="k", operator="Equal", value="v"), True),
        (Toleration(key="k", operator="Equal", value="w"), False),
        (Toleration(key="k", effect="NoExecute"), False),
        (Toleration(key="k", effect=""), True),
    ],
)
def test_toleration_matches_as_the_scheduler_does(toleration: Toleration, tolerated: bool) -> None:
    assert tolerates([toleration], Taint(key="k", value="v", effect="NoSchedule")) is tolerated
