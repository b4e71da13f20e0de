"""Open runs survive an upgrade: today's workflow code replays the recorded histories."""

import json
from pathlib import Path

import pytest
from temporalio.client import WorkflowHistory
from temporalio.contrib.pydantic import pydantic_data_converter
from temporalio.worker import Replayer

from workflows.__main__ import sandbox
from workflows.gpu_pool import GpuPool
from workflows.rollout import Rollout

HISTORIES = {path.stem: path.read_text() for path in sorted((Path(__file__).parent / "histories").glob("*.json"))}


def test_histories_are_there() -> None:
    assert len(HISTORIES) >= 9


@pytest.mark.parametrize("name", HISTORIES)
async def test_recorded_history_replays(name: str) -> None:
    text = HISTORIES[name]
    replayer = Replayer(workflows=[Rollout, GpuPool], workflow_runner=sandbox(), data_converter=pydantic_data_converter)
    await replayer.replay_workflow(WorkflowHistory.from_json(json.loads(text)["workflowId"], text))
