"""The real servers that several folders' tests use, started once a session."""

import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from plnt.sandbox import build
from plnt.sandbox.programs import Programs, find_programs
from plnt.sandbox.running import Sandbox, running_sandbox

# An example may take as long as a busy machine needs; the test as a whole has its time limit.
settings.register_profile("plnt", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("plnt")

CONTROL_PLANE = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler")


SERVERS_START_SECONDS = 240
"""Time limit of a test that may be the one that starts the control plane, on a busy machine."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        uses = getattr(item, "fixturenames", ())
        if "control_plane" in uses and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(SERVERS_START_SECONDS))


@pytest.fixture(scope="session")
def programs() -> Programs:
    """The executables of the sandbox, helm among them."""
    servers = build.find_servers(os.environ)
    if servers is None:
        pytest.fail("the servers are not built: run `plnt build` first (10 to 15 minutes, once)")
    return find_programs(servers.folder, servers.istio_crds)


@pytest.fixture(scope="session")
async def control_plane(tmp_path_factory: pytest.TempPathFactory, programs: Programs) -> AsyncIterator[Sandbox]:
    """A real API server with controllers and scheduler, but no kubelet: ``.kubeconfig`` is the administrator's.

    WorkflowRun and Istio's kinds are served. ``await control_plane.kubectl(...)`` runs the real kubectl.
    """
    root: Path = tmp_path_factory.mktemp("control-plane")
    async with running_sandbox(root, programs, only=CONTROL_PLANE) as sandbox:
        yield sandbox
