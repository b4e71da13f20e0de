"""Histories stay small whatever the model, the smoke test or the time that a step fails for."""

import json
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from plnt.errors import Rejected
from plnt.model.status import ConditionType, Phase
from tests.fakes.rollouts import Rollouts, running_rollouts
from tests.fakes.steps import Fault, make_desired, make_spec, serving_world

pytestmark = pytest.mark.timeout(120)

MOST_PAYLOAD_BYTES = 16 * 1024
EVENTS_TO_CONTINUE = 60
"""Events after which the server of these tests suggests a new history; a rollout has more before its settle."""
LONG = "x" * 4000


def find_payloads(part: Any) -> Iterator[str]:
    """Give every payload of a history as JSON has it, in base64."""
    if isinstance(part, dict):
        if "metadata" in part and isinstance(part.get("data"), str):
            yield part["data"]
        for value in part.values():
            yield from find_payloads(value)
    elif isinstance(part, list):
        for value in part:
            yield from find_payloads(value)


async def test_history_does_not_grow_with_prompts_or_names_and_payloads_stay_small(rollouts: Rollouts) -> None:
    commands = []
    for name, prompts, model in (("few", 1, "m"), ("many", 1000, "org/" + 200 * "m")):
        spec = make_spec(canary__smokeTest__prompts=prompts, model__name=model)
        await rollouts.roll_out(f"history-{name}", make_desired(spec=spec))
        history = json.loads((await rollouts.handle(f"history-{name}").fetch_history()).to_json())
        assert max(len(data) * 3 // 4 for data in find_payloads(history)) < MOST_PAYLOAD_BYTES
        kinds = [event["eventType"] for event in history["events"]]
        assert len(kinds) <= 150
        # How many workflow tasks it takes is chance.
        commands.append(Counter(kind for kind in kinds if "WORKFLOW_TASK" not in kind))
    assert commands[0] == commands[1]


async def test_payloads_of_a_failure_with_a_long_text_stay_small(rollouts: Rollouts) -> None:
    rollouts.world("long-error").faults["set-weights"] = Fault(error=Rejected(LONG))
    ended = await rollouts.roll_out("long-error")
    history = json.loads((await rollouts.handle("long-error").fetch_history()).to_json())
    assert max(len(data) * 3 // 4 for data in find_payloads(history)) < MOST_PAYLOAD_BYTES
    assert len(ended.last.last_error) < len(LONG)


@pytest.fixture
async def short_histories() -> AsyncIterator[Rollouts]:
    async with running_rollouts(server=[f"limit.historyCount.suggestContinueAsNew={EVENTS_TO_CONTINUE}"]) as running:
        yield running


async def test_step_that_fails_on_past_weight_100_goes_on_with_a_new_history(short_histories: Rollouts) -> None:
    world = short_histories.fakes.worlds["endless"] = serving_world("endless")
    world.faults["settle"] = Fault(error=Rejected("a webhook refuses the Service"), times=2)
    spec = make_spec(model__storageUri="s3://models/next", replicas__min=2)
    ended = await short_histories.roll_out("endless", make_desired(2, spec=spec))
    assert (ended.last.phase, ended.last.last_error) == (Phase.READY, "")
    assert "withdraw-canary" not in world.calls
    assert len(world.installed) == 1
    (release,) = world.releases.values()
    assert world.weights == {release.revision: 100}
    assert world.selector == world.serving == release.revision
    assert not world.leases
    reports = await short_histories.reports("endless")
    assert len({report.run_id for report in reports}) == 2
    stalled = [r for r in reports if any(c.type is ConditionType.STALLED and c.status == "True" for c in r.conditions)]
    assert {report.last_error for report in stalled} == {"Rejected: a webhook refuses the Service"}
