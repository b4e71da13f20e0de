"""Who holds the size of what serves: the rollout, or an autoscaler that it leaves alone."""

import pytest

from plnt.model.status import ConditionType, Phase
from tests.fakes.rollouts import Rollouts
from tests.fakes.steps import Fault, make_desired, make_spec, serving_world

pytestmark = pytest.mark.timeout(120)


async def test_canary_follows_what_the_autoscaler_made_of_the_serving_release_meanwhile(rollouts: Rollouts) -> None:
    world = rollouts.fakes.worlds["grown"] = serving_world("grown", pods=1)
    (serving,) = world.releases.values()
    bake = world.faults["watch-canary"] = Fault(hold=True)
    spec = make_spec(model__storageUri="s3://models/next", autoscaling__targetTokensPerSecond=100)
    await rollouts.poke("grown", make_desired(2, spec=spec))
    await rollouts.wait_entered("grown", "watch-canary")
    serving.replicas = 4
    bake.released.set()
    ended = await rollouts.wait("grown")
    (promoted,) = world.releases.values()
    assert (ended.last.phase, promoted.replicas) == (Phase.READY, 4)


async def test_bake_begins_with_the_canarys_share_of_the_present_size(rollouts: Rollouts) -> None:
    world = rollouts.fakes.worlds["share"] = serving_world("share", pods=1)
    (serving,) = world.releases.values()
    test = world.faults["run-smoke-test"] = Fault(hold=True)
    spec = make_spec(model__storageUri="s3://models/next", canary__trafficPercent=50)
    await rollouts.poke("share", make_desired(2, spec=spec))
    await rollouts.wait_entered("share", "run-smoke-test")
    serving.replicas = 4
    test.released.set()
    await rollouts.wait("share")
    assert [arg.replicas for arg in world.taken["size-release"]] == [2, 4, 1]


async def test_autoscaled_release_keeps_its_size_through_an_in_place_change(rollouts: Rollouts) -> None:
    world = rollouts.fakes.worlds["kept"] = serving_world("kept", pods=3)
    spec = make_spec(autoscaling__targetTokensPerSecond=100)
    ended = await rollouts.roll_out("kept", make_desired(2, spec=spec))
    (serving,) = world.releases.values()
    assert (ended.last.phase, serving.replicas) == (Phase.READY, 3)
    assert world.taken["settle"][0].spec == spec
    found = next(one for one in ended.last.conditions if one.type is ConditionType.AUTOSCALING_READY)
    assert (found.status.value, found.reason) == ("True", "Autoscaling")


async def test_release_is_sized_after_its_autoscaler_is_gone(rollouts: Rollouts) -> None:
    world = rollouts.fakes.worlds["fixed"] = serving_world("fixed", pods=3)
    ended = await rollouts.roll_out("fixed", make_desired(2, spec=make_spec(replicas__min=2)))
    (serving,) = world.releases.values()
    assert (ended.last.phase, serving.replicas) == (Phase.READY, 2)
    assert world.calls.index("settle") < world.calls.index("size-release")


async def test_model_without_pods_stays_so_while_its_autoscaler_allows_it(rollouts: Rollouts) -> None:
    world = rollouts.fakes.worlds["idle"] = serving_world("idle", pods=0)
    spec = make_spec(replicas__min=0, autoscaling__targetTokensPerSecond=100)
    await rollouts.roll_out("idle", make_desired(2, spec=spec))
    assert not {"size-release", "await-release"} & set(world.calls)
    await rollouts.roll_out("idle", make_desired(3, spec=make_spec(autoscaling__targetTokensPerSecond=100)))
    assert [arg.replicas for arg in world.taken["size-release"]] == [1]


@pytest.mark.parametrize(("least", "reason"), [(0, "ScaleToZeroUnavailable"), (2, "NotRequested")])
async def test_size_without_a_target_is_fixed_and_said_from_the_start(
    rollouts: Rollouts, least: int, reason: str
) -> None:
    name = f"untargeted-{least}"
    ended = await rollouts.roll_out(name, make_desired(spec=make_spec(replicas__min=least)))
    (serving,) = rollouts.world(name).releases.values()
    assert (ended.last.phase, serving.replicas) == (Phase.READY, max(least, 1))
    for report in await rollouts.reports(name):
        found = next(one for one in report.conditions if one.type is ConditionType.AUTOSCALING_READY)
        assert (found.status.value, found.reason) == ("False", reason)
