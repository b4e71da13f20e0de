"""A sandbox in which everything may be killed."""

from collections.abc import AsyncIterator

import pytest

from plnt.sandbox.cluster import open_kube
from plnt.sandbox.programs import Programs
from plnt.sandbox.running import Sandbox, running_sandbox
from tests.chaos.kills import SETTINGS
from tests.e2e.place import Place, make_place


@pytest.fixture(scope="session")
async def tough_sandbox(tmp_path_factory: pytest.TempPathFactory, programs: Programs) -> AsyncIterator[Sandbox]:
    async with running_sandbox(tmp_path_factory.mktemp("chaos"), programs, overrides=SETTINGS) as running:
        yield running


@pytest.fixture
async def tough_place(request: pytest.FixtureRequest, tough_sandbox: Sandbox) -> AsyncIterator[Place]:
    async with open_kube(tough_sandbox.kubeconfig) as kube:
        yield await make_place(tough_sandbox, kube, request.node.name)
