"""How many pods a release has at each point."""

import pytest

from plnt.model.sizes import canary_size, fixed_size, full_size, least_size
from tests.fakes.steps import make_spec


@pytest.mark.parametrize(("least", "size"), [(0, 1), (1, 1), (5, 5)])
def test_fixed_size_is_replicas_min_but_at_least_one(least: int, size: int) -> None:
    assert fixed_size(make_spec(replicas__min=least, replicas__max=9)) == size


@pytest.mark.parametrize(
    ("percent", "stable", "size"), [(5, 1, 1), (5, 0, 1), (20, 10, 2), (21, 10, 3), (50, 3, 2), (100, 7, 7)]
)
def test_canary_has_its_share_of_the_stable_pods_rounded_up(percent: int, stable: int, size: int) -> None:
    assert canary_size(make_spec(canary__trafficPercent=percent), stable) == size


def test_full_size_never_loses_capacity() -> None:
    assert full_size(make_spec(replicas__min=2), 5) == 5
    assert full_size(make_spec(replicas__min=4), 1) == 4


@pytest.mark.parametrize(("least", "target", "size"), [(0, None, 1), (0, 100, 0), (2, 100, 2), (2, None, 2)])
def test_only_an_autoscaler_takes_the_last_pod_away(least: int, target: int | None, size: int) -> None:
    spec = make_spec(replicas__min=least, autoscaling__targetTokensPerSecond=target)
    assert least_size(spec) == size
