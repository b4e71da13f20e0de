"""One whole sandbox for the session; a namespace, nodes and a GPU class of its own for each test."""

import hashlib
import os
import re
from collections.abc import AsyncIterator
from dataclasses import dataclass

import pytest

from plnt.clients.kube import Kube
from plnt.sandbox.cluster import NAMESPACES, create_namespace, open_kube
from plnt.sandbox.kubelet import control
from plnt.sandbox.programs import Programs
from plnt.sandbox.running import Sandbox, running_sandbox
from tests.e2e.models import Models

SECONDS = 180
"""Time limit of a test, the sandbox's start included for the one that comes first."""
GPUS = 8


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "e2e" in item.path.parts and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(SECONDS))


@pytest.fixture(scope="session")
async def sandbox(tmp_path_factory: pytest.TempPathFactory, programs: Programs) -> AsyncIterator[Sandbox]:
    """The sandbox that tests share; those that kill or restart components start their own with `fresh_sandbox`."""
    async with running_sandbox(tmp_path_factory.mktemp("sandbox"), programs) as running:
        yield running


@pytest.fixture(scope="session")
def models(sandbox: Sandbox) -> Models:
    """The model folders of the shared sandbox."""
    return Models(sandbox)


@pytest.fixture
async def fresh_sandbox(tmp_path_factory: pytest.TempPathFactory, programs: Programs) -> AsyncIterator[Sandbox]:
    """A sandbox of the test's own, to break things in; ``PLNT_E2E_*`` variables pass settings through."""
    passed = {key.removeprefix("PLNT_E2E_"): value for key, value in os.environ.items() if key.startswith("PLNT_E2E_")}
    async with running_sandbox(tmp_path_factory.mktemp("fresh"), programs, overrides=passed) as running:
        yield running


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


@pytest.fixture
async def place(request: pytest.FixtureRequest, sandbox: Sandbox) -> AsyncIterator[Place]:
    """A place of the test's own in the shared sandbox."""
    async with open_kube(sandbox.kubeconfig) as kube:
        made = await make_place(sandbox, kube, request.node.name)
        yield made
        await clear_place(made)


async def make_place(sandbox: Sandbox, kube: Kube, test: str) -> Place:
    """Make a namespace named after ``test`` and one node with `GPUS` GPUs of its own class."""
    digest = hashlib.sha256(test.encode()).hexdigest()[:6]
    name = re.sub(r"[^a-z0-9]+", "-", test.lower().removeprefix("test_")).strip("-")[:33].rstrip("-") + f"-{digest}"
    await create_namespace(kube, name)
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
