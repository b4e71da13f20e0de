"""What the product's accounts did in all scenarios of the session, against what they may do; runs last."""

from pathlib import Path

import pytest

from plnt.sandbox.cluster import render_roles
from plnt.sandbox.running import Sandbox
from tests.e2e.audit import Request, find_forbidden, list_grants, read_requests

HERE = Path(__file__).parent


@pytest.fixture
def logs(sandbox: Sandbox, tmp_path_factory: pytest.TempPathFactory) -> list[list[Request]]:
    """The requests in each sandbox of this session."""
    return [read_requests(log) for log in sorted(tmp_path_factory.getbasetemp().glob("*/logs/audit.log"))]


def test_no_request_of_the_product_was_forbidden(logs: list[list[Request]]) -> None:
    forbidden = {f"{request.use} at {request.path}" for log in logs for request in find_forbidden(log)}
    assert sorted(forbidden) == []


@pytest.mark.extended
async def test_every_right_that_the_chart_grants_was_used(
    request: pytest.FixtureRequest, sandbox: Sandbox, logs: list[list[Request]]
) -> None:
    collected = {item.path for item in request.session.items}
    if not collected >= set(HERE.glob("test_*.py")):
        pytest.skip("only a part of the scenarios ran")
    used = {request.use for log in logs for request in log if not request.is_forbidden}
    unused = list_grants(await render_roles(sandbox.programs)) - used
    assert sorted(map(str, unused)) == []


async def test_processes_without_a_role_ask_the_api_server_for_nothing(logs: list[list[Request]]) -> None:
    idle = {"control", "smoke"}
    assert {str(request.use) for log in logs for request in log if request.use.component in idle} == set()
