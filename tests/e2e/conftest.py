"""One whole sandbox for the session; a namespace, nodes and a GPU class of its own for each test."""

import os
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from plnt.sandbox.cluster import open_kube
from plnt.sandbox.programs import Programs
from plnt.sandbox.running import Sandbox, running_sandbox
from tests.e2e.models import Models
from tests.e2e.place import Place, clear_place, make_place
from tests.e2e.settled import Settled, settle_two

SECONDS = 180
"""Time limit of a test, the sandbox's start included for the one that comes first."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "e2e" in item.path.parts and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(SECONDS))
    items.sort(key=lambda item: item.path.name == LAST)


LAST = "test_99_audit.py"
"""Looks back on what all the others did."""


@pytest.fixture(scope="session")
def dial_audit(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The file in which each Python process of the shared sandbox notes the 10.x addresses that it dials."""
    file = tmp_path_factory.mktemp("audit") / "dials"
    file.touch()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(Path(__file__).parents[1] / "fakes" / "dial_audit"))
        patch.setenv("DIAL_AUDIT_FILE", str(file))
        yield file


@pytest.fixture(scope="session")
async def sandbox(
    tmp_path_factory: pytest.TempPathFactory, programs: Programs, dial_audit: Path
) -> AsyncIterator[Sandbox]:
    """The sandbox that tests share; those that kill or restart components start their own with `fresh_sandbox`."""
    async with running_sandbox(tmp_path_factory.mktemp("sandbox"), programs) as running:
        yield running


@pytest.fixture(scope="session")
def models(sandbox: Sandbox) -> Models:
    """The model folders of the shared sandbox."""
    return Models(sandbox)


@pytest.fixture(scope="session")
async def settled(sandbox: Sandbox, models: Models) -> AsyncIterator[Settled]:
    """A Ready and a RolledBack run that nobody changes any more."""
    async with open_kube(sandbox.kubeconfig) as kube:
        yield await settle_two(await make_place(sandbox, kube, "settled"), models)


@pytest.fixture
async def fresh_sandbox(tmp_path_factory: pytest.TempPathFactory, programs: Programs) -> AsyncIterator[Sandbox]:
    """A sandbox of the test's own, to break things in; ``PLNT_E2E_*`` variables pass settings through."""
    passed = {key.removeprefix("PLNT_E2E_"): value for key, value in os.environ.items() if key.startswith("PLNT_E2E_")}
    async with running_sandbox(tmp_path_factory.mktemp("fresh"), programs, overrides=passed) as running:
        yield running


@pytest.fixture
async def place(request: pytest.FixtureRequest, sandbox: Sandbox) -> AsyncIterator[Place]:
    """A place of the test's own in the shared sandbox."""
    async with open_kube(sandbox.kubeconfig) as kube:
        made = await make_place(sandbox, kube, request.node.name)
        yield made
        await clear_place(made)
