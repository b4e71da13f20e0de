"""The server that the tests of this folder share."""

from collections.abc import AsyncIterator

import pytest

from tests.fakes.rollouts import Rollouts, running_rollouts


@pytest.fixture(scope="session")
async def rollouts() -> AsyncIterator[Rollouts]:
    """Every queue served, on a Temporal server of its own."""
    async with running_rollouts() as found:
        yield found
