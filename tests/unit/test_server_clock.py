"""Activities measure by the server's clock: a worker's own may be wrong by an hour."""

import dataclasses
from datetime import UTC, datetime, timedelta

import pytest
from temporalio.testing import ActivityEnvironment

from activities.clock import ServerClock


@pytest.mark.parametrize("skew", [timedelta(hours=-1), timedelta(0), timedelta(hours=1)])
async def test_time_is_the_servers_whatever_the_workers_clock_says(skew: timedelta) -> None:
    environment = ActivityEnvironment()
    server = datetime.now(UTC) + skew
    environment.info = dataclasses.replace(environment.info, started_time=server)

    async def read() -> datetime:
        return ServerClock().now()

    assert timedelta(0) <= await environment.run(read) - server < timedelta(minutes=1)


async def test_clock_that_is_set_meanwhile_changes_no_measurement(monkeypatch: pytest.MonkeyPatch) -> None:
    async def measure() -> float:
        clock = ServerClock()
        before = clock.time()
        monkeypatch.setattr("time.time", lambda: 0.0)
        return clock.time() - before

    assert 0 <= await ActivityEnvironment().run(measure) < 60
