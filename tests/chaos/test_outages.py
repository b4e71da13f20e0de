"""Five minutes without one of the servers in the middle of a rollout."""

import pytest

from plnt.model.status import Phase
from tests.chaos.kills import serve_first, strike, upload, wait_end, wait_moment
from tests.chaos.world import wait_settled
from tests.e2e.place import Place

OUTAGE_SECONDS = 300.0


@pytest.mark.parametrize("server", ["temporal", "kube-apiserver", "etcd"])
@pytest.mark.parametrize("moment", [Phase.PULLING_WEIGHTS, Phase.SMOKE_TESTING, Phase.PROMOTING])
async def test_rollout_goes_on_after_an_outage_of_five_minutes(tough_place: Place, server: str, moment: Phase) -> None:
    subject = await serve_first(tough_place)
    scenario = subject.scenario
    generation = await scenario.apply(await upload(tough_place.sandbox, 24))
    await wait_moment(scenario, generation, moment)
    await strike(tough_place.sandbox, server, OUTAGE_SECONDS)
    await wait_end(scenario, Phase.READY, generation)
    await wait_settled(tough_place)
    assert len(await scenario.runs()) <= 3
