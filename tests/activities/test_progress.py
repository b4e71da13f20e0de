"""What a working activity says of itself."""

import dataclasses
import logging
from datetime import timedelta

import pytest
from temporalio.testing import ActivityEnvironment

from activities.progress import heartbeat
from plnt.model.pull_progress import PullProgress
from tests.fakes.waiting import eventually

QUICK = timedelta(milliseconds=50)


async def test_heartbeats_go_on_with_the_last_details_when_new_ones_cannot_be_read(
    caplog: pytest.LogCaptureFixture,
) -> None:
    environment, beats = ActivityEnvironment(), []
    environment.info = dataclasses.replace(environment.info, heartbeat_timeout=QUICK)
    environment.on_heartbeat = lambda *details: beats.append(details)
    readable = PullProgress(bytes_done=5, bytes_total=10)

    def read() -> PullProgress:
        if beats:
            raise ZeroDivisionError("no rate yet")
        return readable

    async def work() -> None:
        async with heartbeat(read):
            await eventually(lambda: len(beats) >= 4)

    with caplog.at_level(logging.ERROR, logger="activities.progress"):
        await environment.run(work)
    assert set(beats) == {(readable,)}
    assert [record.exc_info is not None for record in caplog.records] == [True]
