"""Whether a workflow still runs."""

from datetime import timedelta
from typing import cast

import pytest
from temporalio.client import Client
from temporalio.service import RPCError
from temporalio.testing import ActivityEnvironment

from activities import open_runs
from tests.fakes.temporal_client import SilentTemporal


async def test_question_about_a_run_ends_with_an_error_when_temporal_is_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(open_runs, "RPC_TIMEOUT", timedelta(milliseconds=50))
    environment = ActivityEnvironment(cast(Client, SilentTemporal()))
    with pytest.raises(RPCError, match="Timeout expired"):
        await environment.run(open_runs.find_closed, "rollout.default.m", "run-1")
