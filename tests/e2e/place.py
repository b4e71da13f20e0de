"""A test's own corner of a sandbox: a namespace, nodes, a GPU class and faults that no other test meets."""

import hashlib
import re
from dataclasses import dataclass

from plnt.clients.kube import Kube
from plnt.sandbox.cluster import NAMESPACES, create_namespace
from plnt.sandbox.kubelet import control
from plnt.sandbox.running import Sandbox

GPUS = 8
"""GPUs of the node that every place begins with."""


@dataclass(frozen=True)
class Place:
    """A test's own namespace, and nodes that alone offer the resource ``gpu_class``."""

    namespace: str
    gpu_class: str
    kube: Kube
    sandbox: Sandbox

    def add_node(self, name: str, gpus: int) -> None:
        """Add a node with ``gpus`` of this place's class."""
        node = control.SimulatedNode(name=f"{self.namespace}-{name}", resources={self.gpu_class: str(gpus)})
        control.change(self.sandbox.state.root, lambda before: before.with_nodes(node))

    def add_fault(self, fault: control.Fault) -> None:
        """Let something go wrong in this place's namespace."""
        own = fault.model_copy(update={"namespace": self.namespace})
        control.change(self.sandbox.state.root, lambda before: before.with_faults(own))

    def clear_faults(self) -> None:
        """Let nothing go wrong any more."""
        control.change(self.sandbox.state.root, lambda before: before.without_faults(self.namespace))


async def make_place(sandbox: Sandbox, kube: Kube, test: str) -> Place:
    """Make a namespace named after ``test`` and one node with `GPUS` GPUs of its own class."""
    digest = hashlib.sha256(test.encode()).hexdigest()[:6]
    name = re.sub(r"[^a-z0-9]+", "-", test.lower().removeprefix("test_")).strip("-")[:33].rstrip("-") + f"-{digest}"
    await create_namespace(kube, name, {"pod-security.kubernetes.io/enforce": "baseline"})
    made = Place(name, f"plnt.test/{name}", kube, sandbox)
    made.add_node("a", GPUS)
    return made


async def clear_place(place: Place) -> None:
    """Take the place's nodes and faults away; the namespace goes by itself."""
    place.clear_faults()
    prefix = f"{place.namespace}-"
    names = [node.name for node in control.load(place.sandbox.state.root).nodes if node.name.startswith(prefix)]
    control.change(place.sandbox.state.root, lambda before: before.without_nodes(*names))
    await place.kube.delete(NAMESPACES, None, place.namespace)
