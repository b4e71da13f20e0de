"""How the nodes of a cluster name a GPU class, and whether one of them could ever hold a pod."""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from pydantic import Field, ValidationError

from plnt.errors import GpuClassUnknown, SpecInvalid
from plnt.model.message import Manifest
from plnt.model.messages import GpuClass, ResolveClass, Toleration
from plnt.model.node import Node, tolerates

SHARED_RESOURCE = "nvidia.com/gpu"
"""Resource name of NVIDIA's device plugin for every model of GPU."""
PRODUCT_LABEL = "nvidia.com/gpu.product"
"""Label that GPU feature discovery writes, such as ``NVIDIA-H100-80GB-HBM3``."""
MEMORY_LABEL = "nvidia.com/gpu.memory"
"""Label that GPU feature discovery writes: memory of one GPU, in MiB."""
MAP_SETTING = "PLNT_GPU_CLASSES"

_NO_WHOLE_GPU = re.compile(r"-SHARED|-MIG-")
_NAMES_SHOWN = 20
_GIB = 2**30


class MappedClass(Manifest):
    """An administrator's word on how pods ask for a class."""

    resource_name: str
    node_selector: dict[str, str] = Field(default_factory=dict)
    tolerations: list[Toleration] = Field(default_factory=list)


def read_class_map(setting: Mapping[str, Mapping[str, Any]]) -> dict[str, GpuClass]:
    """Read the administrator's map.

    Raises:
        ValueError: an entry is malformed; the message names setting, class and field.
    """
    classes = {}
    for name, entry in setting.items():
        try:
            mapped = MappedClass.model_validate(entry)
        except ValidationError as error:
            fault = error.errors()[0]
            where = ".".join(map(str, fault["loc"]))
            raise ValueError(f"{MAP_SETTING}: class {name}: {where}: {fault['msg']}") from None
        classes[name] = GpuClass.model_validate(mapped.model_dump(by_alias=False))
    return classes


def choose_class(
    wanted: str, mapped: Mapping[str, GpuClass], nodes: Sequence[Node], extended: Iterable[str]
) -> GpuClass:
    """Find how pods ask for ``wanted``: the map, a resource of that name, a device class, a product label.

    ``extended`` are the extended resource names that device classes serve; nodes do not list those. Where several
    products carry the name, the one with the most GPUs is taken: a node selector holds one value.

    Raises:
        GpuClassUnknown: none; the message says what the nodes offer.
    """
    if wanted in mapped:
        return mapped[wanted]
    if wanted in set(extended) or any(wanted in node.allocatable for node in nodes):
        return GpuClass(resource_name=wanted, tolerations=_usual_tolerations(wanted))
    products = _products(wanted, nodes)
    if products:
        product = max(sorted(products), key=lambda name: products[name])
        return GpuClass(
            resource_name=SHARED_RESOURCE,
            node_selector={PRODUCT_LABEL: product},
            tolerations=_usual_tolerations(SHARED_RESOURCE),
        )
    raise GpuClassUnknown(_describe_unknown(wanted, mapped, nodes))


def add_memory(wanted: str, chosen: GpuClass, nodes: Iterable[Node], table: Mapping[str, float]) -> GpuClass:
    """Add the memory of one GPU: the administrator's word, else the most that a node of the class is labelled with."""
    if wanted in table:
        return chosen.model_copy(update={"memory_mib": int(table[wanted] * 1024)})
    labels = [node.labels.get(MEMORY_LABEL, "") for node in nodes if _could_run(node, chosen)]
    if not labels or not all(label.isdecimal() for label in labels):
        return chosen
    return chosen.model_copy(update={"memory_mib": max(map(int, labels))})


def check_room(request: ResolveClass, gpu_class: GpuClass, nodes: Iterable[Node]) -> None:
    """Check that some node could hold one pod when nothing else ran on it.

    Raises:
        GpuClassUnknown: no node of the class would let the pod in.
        SpecInvalid: no node is large enough; the message names field, limit and remedy.
    """
    fitting = [node for node in nodes if _could_run(node, gpu_class)]
    name, resource = request.gpu_class, gpu_class.resource_name
    most = max((node.allocatable[resource] for node in fitting), default=0)
    if not most:
        raise GpuClassUnknown(
            f"spec.resources.gpuClass: no node offers {resource} to {name}{_say_selector(gpu_class)}:"
            f" add such a node, or correct the entry in {MAP_SETTING}"
        )
    if request.gpu > most:
        raise SpecInvalid(
            f"spec.resources.gpu: {request.gpu} GPUs are more than any node with {name} has: use {most} or less"
        )
    memory = max(n.allocatable.get("memory", 0) for n in fitting if n.allocatable[resource] >= request.gpu) // _GIB
    if request.memory_gib > memory:
        raise SpecInvalid(
            f"spec.resources.memoryGiB: {request.memory_gib} GiB are more than any node with {request.gpu} {name}"
            f" has: use {memory} or less"
        )


def _could_run(node: Node, gpu_class: GpuClass) -> bool:
    return (
        gpu_class.resource_name in node.allocatable
        and gpu_class.node_selector.items() <= node.labels.items()
        and all(taint.passing or tolerates(gpu_class.tolerations, taint) for taint in node.taints)
    )


def _usual_tolerations(resource: str) -> list[Toleration]:
    """Clusters taint GPU nodes with the name of their resource."""
    keys = {resource} | ({SHARED_RESOURCE} if resource.startswith("nvidia.com/") else set())
    return [Toleration(key=key) for key in sorted(keys)]


def _products(wanted: str, nodes: Iterable[Node]) -> dict[str, int]:
    """Give the products whose words hold every word of the class, with the number of their GPUs."""
    domain, _, kind = wanted.partition("/")
    found: dict[str, int] = {}
    for node in nodes if domain == "nvidia.com" else ():
        product = node.labels.get(PRODUCT_LABEL, "")
        if _words(kind) <= _words(product) and not _NO_WHOLE_GPU.search(product):
            found[product] = found.get(product, 0) + node.allocatable.get(SHARED_RESOURCE, 0)
    return {product: gpus for product, gpus in found.items() if gpus}


def _words(text: str) -> set[str]:
    return set(re.findall(r"[a-z0-9]+", text.lower()))


def _describe_unknown(wanted: str, mapped: Iterable[str], nodes: Iterable[Node]) -> str:
    offered = set(mapped)
    products = set()
    for node in nodes:
        offered |= {key for key in node.allocatable if "/" in key and "kubernetes.io/" not in key}
        products |= {node.labels[PRODUCT_LABEL]} if PRODUCT_LABEL in node.labels else set()
    return (
        f"spec.resources.gpuClass: no node offers {wanted}; classes seen: {_say(offered)};"
        f" products seen: {_say(products)}: use one of those, or map the class in {MAP_SETTING}"
    )


def _say(words: set[str]) -> str:
    return ", ".join(sorted(words)[:_NAMES_SHOWN]) or "none"


def _say_selector(gpu_class: GpuClass) -> str:
    labels = ", ".join(f"{key}={value}" for key, value in sorted(gpu_class.node_selector.items()))
    return f" with label {labels}" if labels else ""
