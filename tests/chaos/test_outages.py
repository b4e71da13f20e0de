"""Five minutes without one of the servers, with a rollout in each of three phases meanwhile."""

import os

import pytest

from plnt.model.status import Phase
from tests.chaos.kills import PULL_BYTES_PER_SECOND, Subject, serve_first, strike, upload, wait_end, wait_moment
from tests.chaos.world import wait_settled
from tests.e2e.models import MIB
from tests.e2e.place import Place

OUTAGE_SECONDS = float(os.environ.get("CHAOS_OUTAGE_SECONDS", "300"))
SERVERS = os.environ.get("CHAOS_SERVERS", "temporal,kube-apiserver,etcd").split(",")
AFTER_SECONDS = 300.0
"""Longest time from the server's return to the end of three rollouts: back-offs reach half a minute each."""
PULL_SECONDS = 30
"""The first two rollouts reach their phases in less."""
BAKE_SECONDS = 60
STRUCK = {"smoking": Phase.SMOKE_TESTING, "promoting": Phase.PROMOTING, "pulling": Phase.PULLING_WEIGHTS}


@pytest.mark.parametrize("server", SERVERS)
async def test_rollouts_in_three_phases_go_on_after_an_outage_of_five_minutes(tough_place: Place, server: str) -> None:
    subjects = {name: await serve_first(tough_place, name) for name in STRUCK}
    before = await subjects["pulling"].scenario.releases()
    generations = await reach_phases(tough_place, subjects)
    assert {name: (await subject.scenario.status())["phase"] for name, subject in subjects.items()} == STRUCK
    await strike(tough_place.sandbox, server, OUTAGE_SECONDS)
    for name, subject in subjects.items():
        await wait_end(subject.scenario, Phase.READY, generations[name], AFTER_SECONDS)
    await wait_settled(tough_place, AFTER_SECONDS)
    after = await subjects["pulling"].scenario.releases()
    assert (len(before), len(after), before & after) == (3, 3, set())
    assert [len(await subject.scenario.runs()) for subject in subjects.values()] == [2, 2, 2]


async def reach_phases(place: Place, subjects: dict[str, Subject]) -> dict[str, int]:
    """Bring a second generation of each into its phase, the one that stays longest first."""
    sandbox, generations = place.sandbox, {}
    large = await upload(sandbox, PULL_SECONDS * PULL_BYTES_PER_SECOND // MIB)
    for name, bake in (("smoking", BAKE_SECONDS), ("promoting", 0)):
        scenario = subjects[name].scenario
        async with scenario.recorded():
            annotations = {"plnt.work/bake-seconds": str(bake)}
            generations[name] = await scenario.apply(await upload(sandbox, 2), annotations=annotations)
            if name == "promoting":
                generations["pulling"] = await subjects["pulling"].scenario.apply(large)
            await wait_moment(scenario, generations[name], STRUCK[name])
    return generations
