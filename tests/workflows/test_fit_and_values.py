"""What Validating makes of a model's size, its format and a user's chart values, and what the run then does not do."""

from collections.abc import Iterable

import pytest

from plnt.errors import UnsupportedCombination
from plnt.model.messages import ExtraValues, PlanRef
from plnt.model.model_shape import ModelShape
from plnt.model.options import Options
from plnt.model.status import ConditionType, Phase, PhaseReport
from plnt.model.workflow_run import Quantization, Runtime
from tests.fakes.rollouts import Ended, Rollouts
from tests.fakes.steps import Fault, SmallWorld, make_desired, make_spec, serving_world

pytestmark = pytest.mark.timeout(120)

GIB = 2**30
BIG = PlanRef(
    digest="plan",
    files=3,
    bytes=20 * GIB,
    weight_bytes=20 * GIB,
    shape=ModelShape(heads=32, context_tokens=131_072, kv_bytes_per_token=131_072),
)
"""20 GiB of weights, and 16 GiB more for a request of the full length."""
EXTRA = Options(values_from="extra")


def condition(report: PhaseReport, kind: ConditionType) -> tuple[str, str, str]:
    """Give status, reason and message of a condition."""
    found = next(one for one in report.conditions if one.type is kind)
    return found.status.value, found.reason, found.message


def check_refused(ended: Ended, world: SmallWorld, words: Iterable[str]) -> None:
    """Check that the generation failed in Validating for that reason, and that it took nothing of anybody."""
    assert (ended.last.phase, ended.phases) == (Phase.FAILED, ["Validating", "Failed"])
    for word in words:
        assert word in ended.last.last_error
    assert not {"pull-weights", "join-line", "install-release"} & set(world.calls)
    assert condition(ended.last, ConditionType.ACCEPTED)[:2] == ("False", ended.reason)


async def test_model_beyond_its_gpus_is_refused_before_it_is_pulled(rollouts: Rollouts) -> None:
    world = rollouts.world("beyond")
    world.plan, world.gpu_memory_mib = BIG, 16 * 1024
    ended = await rollouts.roll_out("beyond")
    check_refused(ended, world, ["SpecInvalid: spec.resources.gpu", "at least 20.1 GiB", "use 2 or more"])
    assert not world.claimed


async def test_refused_model_leaves_what_serves_alone(rollouts: Rollouts) -> None:
    world = rollouts.fakes.worlds["stays"] = serving_world("stays")
    world.plan, world.gpu_memory_mib = BIG, 16 * 1024
    before = dict(world.releases)
    ended = await rollouts.roll_out("stays", make_desired(2, spec=make_spec(model__storageUri="s3://models/next")))
    check_refused(ended, world, ["spec.resources.gpu"])
    assert (world.releases, ended.last.endpoint) == (before, "http://stays.default.svc.cluster.local:8000")


async def test_tight_model_is_rolled_out_with_a_warning(rollouts: Rollouts) -> None:
    world = rollouts.world("tight")
    world.plan, world.gpu_memory_mib = BIG, 24 * 1024
    ended = await rollouts.roll_out("tight")
    assert ended.last.phase is Phase.READY
    status, reason, message = condition(ended.last, ConditionType.ACCEPTED)
    assert (status, reason) == ("True", "ValidWithWarnings")
    assert "memory is tight: 20.0 GiB of weights and one request of 131072 tokens take 36.0 GiB" in message


async def test_shorter_requests_of_the_users_values_leave_room(rollouts: Rollouts) -> None:
    world = rollouts.world("short")
    world.plan, world.gpu_memory_mib = BIG, 24 * 1024
    world.values = ExtraValues(name="extra", digest="d1", request_tokens=4096)
    ended = await rollouts.roll_out("short", make_desired(options=EXTRA))
    assert condition(ended.last, ConditionType.ACCEPTED)[:2] == ("True", "Valid")


async def test_gpus_that_do_not_divide_the_heads_are_warned_about(rollouts: Rollouts) -> None:
    world = rollouts.world("heads")
    world.plan = BIG
    ended = await rollouts.roll_out("heads", make_desired(spec=make_spec(resources__gpu=3)))
    assert ended.last.phase is Phase.READY
    _, reason, message = condition(ended.last, ConditionType.ACCEPTED)
    assert reason == "ValidWithWarnings"
    assert "spec.resources.gpu: 3 does not divide the model's 32 attention heads" in message


async def test_format_that_the_runtime_never_loads_is_refused_without_a_look_at_the_source(
    rollouts: Rollouts,
) -> None:
    spec = make_spec(runtime="trt-llm", model__quantization="gptq-4bit")
    ended = await rollouts.roll_out("never", make_desired(spec=spec))
    check_refused(ended, rollouts.world("never"), ["spec.model.quantization", "gptq-4bit", "set spec.runtime to vllm"])
    assert "resolve-source" not in rollouts.world("never").calls


async def test_checkpoint_of_another_format_is_refused_before_it_is_pulled(rollouts: Rollouts) -> None:
    world = rollouts.world("mismatch")
    said = "spec.model.quantization: awq-4bit was asked for, but the checkpoint is not quantized: use fp16"
    world.faults["resolve-source"] = Fault(error=UnsupportedCombination(said))
    ended = await rollouts.roll_out("mismatch", make_desired(spec=make_spec(model__quantization="awq-4bit")))
    check_refused(ended, world, [f"UnsupportedCombination: {said}"])
    (asked,) = world.taken["resolve-source"]
    assert (asked.runtime, asked.quantization) == (Runtime.VLLM, Quantization.AWQ_4BIT)


async def test_users_values_are_installed_as_they_were_checked_and_are_part_of_the_revision(
    rollouts: Rollouts,
) -> None:
    revisions = []
    for name, options, values in (
        ("valued-1", EXTRA, ExtraValues(name="extra", digest="d1")),
        ("valued-2", EXTRA, ExtraValues(name="extra", digest="d2")),
        ("valued-3", Options(), None),
    ):
        world = rollouts.world(name)
        world.values = values
        ended = await rollouts.roll_out(name, make_desired(options=options))
        assert ended.last.phase is Phase.READY
        assert world.taken["survey"][0].values_from == options.values_from
        (request,) = world.taken["install-release"]
        assert (request.values_digest, request.options) == (values.digest if values else "", options)
        revisions.append(request.revision)
    assert len(set(revisions)) == 3


async def test_another_config_map_is_rolled_out_as_a_canary_beside_what_serves(rollouts: Rollouts) -> None:
    world = rollouts.fakes.worlds["renamed"] = serving_world("renamed")
    (old,) = world.releases
    world.values = ExtraValues(name="extra", digest="d1")
    ended = await rollouts.roll_out("renamed", make_desired(1, options=EXTRA))
    assert (ended.last.phase, world.installed) == (Phase.READY, list(world.releases))
    assert old not in world.releases
    assert [arg.canary_percent for arg in world.taken["set-weights"]] == [20, 100]


async def test_values_that_cannot_be_used_are_refused_by_key(rollouts: Rollouts) -> None:
    world = rollouts.world("unusable")
    fault = "annotation plnt.work/values-from: ConfigMap default/extra: resources is set by plnt: leave it out"
    world.values = ExtraValues(name="extra", fault=fault)
    ended = await rollouts.roll_out("unusable", make_desired(options=EXTRA))
    check_refused(ended, world, [f"SpecInvalid: {fault}"])


async def test_target_is_refused_where_the_users_image_does_not_count_tokens(rollouts: Rollouts) -> None:
    world = rollouts.world("uncounted")
    world.values = ExtraValues(name="extra", digest="d1", image_tag="1.2.1")
    spec = make_spec(runtime="trt-llm", autoscaling__targetTokensPerSecond=100)
    ended = await rollouts.roll_out("uncounted", make_desired(spec=spec, options=EXTRA))
    check_refused(ended, world, ["spec.autoscaling.targetTokensPerSecond", "1.2.1", "1.3 or newer"])
