from typing import Any

import pytest

from plnt.errors import GpuClassUnknown, SpecInvalid
from plnt.model.desired import Ref
from plnt.model.gpu_class import (
    MEMORY_LABEL,
    PRODUCT_LABEL,
    SHARED_RESOURCE,
    add_memory,
    check_room,
    choose_class,
    read_class_map,
)
from plnt.model.messages import GpuClass, ResolveClass, Toleration
from plnt.model.node import Node, Taint

GIB = 2**30
H100 = "nvidia.com/h100"


def node(resource: str, gpus: int, gib: int = 100, **changes: Any) -> Node:
    known = {"name": "n", "usable": True, "allocatable": {resource: gpus, "memory": gib * GIB}}
    return Node.model_validate(known | changes)


def labelled(product: str, gpus: int = 8) -> Node:
    return node(SHARED_RESOURCE, gpus, labels={PRODUCT_LABEL: product})


def ask(gpu: int = 1, memory_gib: int = 1) -> ResolveClass:
    return ResolveClass(ref=Ref(namespace="default", name="m"), gpu_class=H100, gpu=gpu, memory_gib=memory_gib)


def test_administrators_map_comes_first() -> None:
    mapped = read_class_map({H100: {"resourceName": "x.test/gpu", "nodeSelector": {"a": "b"}}})
    assert choose_class(H100, mapped, [node(H100, 8)], []).resource_name == "x.test/gpu"


@pytest.mark.parametrize(
    "entry", [{}, {"resourceName": "r", "nodeSelektor": {}}, {"resourceName": "r", "tolerations": [{"operator": "In"}]}]
)
def test_malformed_map_names_setting_and_class(entry: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=rf"PLNT_GPU_CLASSES: class {H100}: "):
        read_class_map({H100: entry})


def test_resource_of_that_name_is_used_as_is() -> None:
    chosen = choose_class(H100, {}, [labelled("NVIDIA-H100-80GB-HBM3"), node(H100, 8)], [])
    assert chosen == GpuClass(resource_name=H100, tolerations=[Toleration(key=SHARED_RESOURCE), Toleration(key=H100)])


def test_device_class_offers_what_nodes_do_not_list() -> None:
    assert choose_class(H100, {}, [], [H100]).resource_name == H100


def test_product_label_is_matched_by_its_words() -> None:
    nodes = [labelled("NVIDIA-A10G"), labelled("NVIDIA-A100-SXM4-80GB"), labelled("NVIDIA-A10")]
    chosen = choose_class("nvidia.com/a10", {}, nodes, [])
    assert chosen.resource_name == SHARED_RESOURCE
    assert chosen.node_selector == {PRODUCT_LABEL: "NVIDIA-A10"}


def test_product_with_most_gpus_is_taken() -> None:
    nodes = [labelled("NVIDIA-H100-NVL", 2), labelled("NVIDIA-H100-PCIe", 4), labelled("NVIDIA-H100-NVL", 4)]
    assert choose_class(H100, {}, nodes, []).node_selector == {PRODUCT_LABEL: "NVIDIA-H100-NVL"}


@pytest.mark.parametrize("product", ["NVIDIA-H100-80GB-HBM3-SHARED", "NVIDIA-H100-80GB-HBM3-MIG-1g.10gb"])
def test_parts_of_a_gpu_are_no_gpu(product: str) -> None:
    with pytest.raises(GpuClassUnknown, match=product):
        choose_class(H100, {}, [labelled(product)], [])


def test_unknown_class_says_what_was_seen() -> None:
    with pytest.raises(GpuClassUnknown) as caught:
        choose_class("nvidia.com/h200", {}, [node(H100, 8), labelled("NVIDIA-A10")], [])
    for word in ("spec.resources.gpuClass", "nvidia.com/h200", H100, "NVIDIA-A10", "PLNT_GPU_CLASSES"):
        assert word in str(caught.value)


@pytest.mark.parametrize(
    ("request_", "words"),
    [
        (ask(gpu=9), "spec.resources.gpu: 9 GPUs are more than any node with nvidia.com/h100 has: use 8 or less"),
        (ask(gpu=8, memory_gib=200), "spec.resources.memoryGiB: 200 GiB .* use 100 or less"),
    ],
)
def test_pod_larger_than_any_node_is_refused_with_the_limit(request_: ResolveClass, words: str) -> None:
    nodes = [node(H100, 8, 100), node(H100, 2, 400)]
    with pytest.raises(SpecInvalid, match=words):
        check_room(request_, GpuClass(resource_name=H100), nodes)


def test_pod_that_an_empty_node_could_hold_passes_even_when_the_node_is_away() -> None:
    away = node(H100, 8, usable=False, taints=[Taint(key="node.kubernetes.io/unreachable", effect="NoExecute")])
    check_room(ask(gpu=8, memory_gib=100), GpuClass(resource_name=H100), [away])


@pytest.mark.parametrize(
    ("gpu_class", "nodes"),
    [
        (GpuClass(resource_name=H100, node_selector={"a": "b"}), [node(H100, 8)]),
        (GpuClass(resource_name=H100), [node(H100, 8, taints=[Taint(key="team", effect="NoSchedule")])]),
        (GpuClass(resource_name=H100), [node(H100, 0)]),
        (GpuClass(resource_name=H100), []),
    ],
)
def test_class_that_no_node_would_let_in_is_unknown(gpu_class: GpuClass, nodes: list[Node]) -> None:
    with pytest.raises(GpuClassUnknown, match="no node offers"):
        check_room(ask(), gpu_class, nodes)


@pytest.mark.parametrize(
    ("labels", "table", "mib"),
    [(["81559", "40960"], {}, 81_559), (["81559", ""], {}, 0), ([""], {H100: 80.0}, 81_920), ([], {}, 0)],
    ids=["largest label", "a node without a label", "table", "no node"],
)
def test_memory_of_a_gpu_is_the_tables_or_the_labels(labels: list[str], table: dict[str, float], mib: int) -> None:
    nodes = [node(H100, 8, labels={MEMORY_LABEL: label} if label else {}) for label in labels]
    assert add_memory(H100, GpuClass(resource_name=H100), nodes, table).memory_mib == mib
