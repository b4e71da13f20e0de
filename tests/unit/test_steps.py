"""The limits in the table of steps."""

from datetime import timedelta

import pytest

from plnt.steps import STEPS, Step

HOUSEKEEPING = {"sweep-releases", "list-live-trees", "collect-cache", "count-free"}
"""Asked anew by their own loops."""
FORWARD_AND_UNDO = [step for step in STEPS if step.name not in HOUSEKEEPING]


@pytest.mark.parametrize("step", FORWARD_AND_UNDO, ids=lambda step: step.name)
def test_step_outlasts_an_hour_without_a_server_or_without_its_pool(step: Step) -> None:  # type: ignore[type-arg]
    assert step.schedule_to_close is None or step.schedule_to_close >= timedelta(hours=1)


@pytest.mark.parametrize("step", FORWARD_AND_UNDO, ids=lambda step: step.name)
def test_only_the_smoke_test_has_a_number_of_attempts(step: Step) -> None:  # type: ignore[type-arg]
    assert (step.retry.maximum_attempts > 0) is (step.name == "run-smoke-test")
