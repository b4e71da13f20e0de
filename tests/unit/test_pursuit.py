"""Whether a change lets the running body go on."""

from typing import Any

import pytest

from plnt.model.options import Options
from plnt.model.pursuit import Pursuit, compare
from plnt.model.revision import pods_digest, revision
from tests.fakes.steps import make_desired, make_spec

WORKING = make_desired(1)


@pytest.mark.parametrize(
    "changed",
    [
        pytest.param({"model__storageUri": "s3://models/other"}, id="weights"),
        pytest.param({"model__name": "org/other"}, id="model-name"),
        pytest.param({"model__quantization": "fp8"}, id="quantization"),
        pytest.param({"runtime": "sglang"}, id="runtime"),
        pytest.param({"resources__gpu": 2}, id="gpus"),
        pytest.param({"resources__memoryGiB": 9}, id="memory"),
    ],
)
def test_change_of_the_pods_supersedes(changed: dict[str, Any]) -> None:
    assert compare(WORKING, make_desired(2, spec=make_spec(**changed))) is Pursuit.SUPERSEDE


@pytest.mark.parametrize(
    "changed",
    [
        pytest.param({"replicas__min": 2}, id="replicas"),
        pytest.param({"autoscaling__targetTokensPerSecond": 100}, id="autoscaling"),
        pytest.param({"canary__trafficPercent": 50}, id="traffic-share"),
        pytest.param({"canary__smokeTest__prompts": 4}, id="smoke-test"),
    ],
)
def test_change_beside_the_pods_is_taken_in_place(changed: dict[str, Any]) -> None:
    assert compare(WORKING, make_desired(2, spec=make_spec(**changed))) is Pursuit.IN_PLACE


def test_option_that_the_pods_do_not_see_is_taken_in_place() -> None:
    assert compare(WORKING, make_desired(1, options=Options(bake_seconds=9))) is Pursuit.IN_PLACE


def test_label_that_goes_to_the_pods_supersedes() -> None:
    queued = make_desired(1, options=Options(labels={"kueue.x-k8s.io/queue-name": "a"}))
    assert compare(WORKING, queued) is Pursuit.SUPERSEDE


def test_same_identity_is_ignored() -> None:
    assert compare(WORKING, make_desired(1)) is Pursuit.SAME


@pytest.mark.parametrize(
    "seen",
    [
        pytest.param(None, id="gone"),
        pytest.param(make_desired(1, uid="uid-2"), id="recreated"),
        pytest.param(make_desired(1, deleting=True), id="deleting"),
        pytest.param(make_desired(2, faults=["annotation plnt.work/x is unknown"]), id="faulty"),
    ],
)
def test_other_object_or_goal_supersedes(seen: Any) -> None:
    assert compare(WORKING, seen) is Pursuit.SUPERSEDE


def test_deletion_that_learns_to_skip_its_teardown_is_superseded() -> None:
    deleting = make_desired(1, deleting=True)
    skipping = make_desired(1, deleting=True, options=Options(skip_teardown=True))
    assert compare(deleting, skipping) is Pursuit.SUPERSEDE
    assert compare(deleting, make_desired(2, deleting=True)) is Pursuit.SAME


def test_revision_is_eight_hex_digits_that_follow_tree_and_chart() -> None:
    spec, options = make_spec(), Options()
    found = {
        revision(spec, options, "tree-1", "0.1.0"),
        revision(spec, options, "tree-2", "0.1.0"),
        revision(spec, options, "tree-1", "0.2.0"),
    }
    assert len(found) == 3
    assert all(len(one) == 8 and int(one, 16) >= 0 for one in found)


def test_pods_digest_ignores_size_and_canary() -> None:
    changed = make_spec(replicas__min=3, replicas__max=5, canary__trafficPercent=99)
    assert pods_digest(changed, Options()) == pods_digest(make_spec(), Options())
