"""Which autoscaler a spec gets, what it looks like, and what the condition says."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from plnt.model import names
from plnt.model.autoscaler import (
    Kind,
    describe_plan,
    find_difference,
    is_own,
    move_target,
    plan_autoscaler,
    render_hpa,
    render_scaled_object,
)
from plnt.model.desired import Policy
from plnt.model.traffic import Site
from plnt.sandbox.metrics.config import render_adapter_config
from tests.fakes.steps import make_spec

DEPLOY = Path(__file__).parents[2] / "deploy"
SITE = Site(namespace="team", name="llama.3", base="llama-3", cluster_domain="cluster.local", run_id="run-1")
RELEASE = "llama-3-0a1b2c3d"
POLICY = Policy(prometheus_url="http://prometheus:9090")
TARGET = {"autoscaling__targetTokensPerSecond": 1500}


@pytest.mark.parametrize(
    ("changes", "keda", "url", "kind", "reason"),
    [
        pytest.param({}, True, "u", Kind.NONE, "NotRequested", id="no target"),
        pytest.param({"replicas__min": 0}, True, "u", Kind.NONE, "ScaleToZeroUnavailable", id="zero without target"),
        pytest.param(TARGET, True, "u", Kind.HPA, "", id="target"),
        pytest.param({**TARGET, "replicas__min": 0}, False, "u", Kind.HPA, "ScaleToZeroUnavailable", id="no KEDA"),
        pytest.param({**TARGET, "replicas__min": 0}, True, "", Kind.HPA, "ScaleToZeroUnavailable", id="no URL"),
        pytest.param({**TARGET, "replicas__min": 0}, True, "u", Kind.KEDA, "", id="KEDA"),
    ],
)
def test_autoscaler_is_chosen_by_spec_and_cluster(
    changes: dict[str, Any], keda: bool, url: str, kind: Kind, reason: str
) -> None:
    spec = make_spec(**changes)
    plan = plan_autoscaler(spec, Policy(prometheus_url=url), keda=keda)
    assert (plan.kind, plan.reason) == (kind, reason)
    told = describe_plan(plan, spec, RELEASE, served=True)
    assert (told.ready, bool(told.message)) == (reason == "", True)


def test_hpa_aims_at_tokens_and_waiting_requests_within_the_bounds() -> None:
    spec = render_hpa(SITE, RELEASE, make_spec(replicas__min=2, replicas__max=6, **TARGET), POLICY)["spec"]
    assert spec["scaleTargetRef"] == {"apiVersion": "apps/v1", "kind": "Deployment", "name": RELEASE}
    assert (spec["minReplicas"], spec["maxReplicas"]) == (2, 6)
    metrics = {one["pods"]["metric"]["name"]: one["pods"]["target"] for one in spec["metrics"]}
    assert metrics == {
        "plnt_tokens_per_sec_per_gpu": {"type": "AverageValue", "averageValue": "1500"},
        "plnt_requests_waiting": {"type": "AverageValue", "averageValue": "4"},
    }
    assert spec["behavior"]["scaleDown"]["stabilizationWindowSeconds"] == 600


def test_hpa_keeps_one_pod_where_nothing_can_go_to_zero() -> None:
    assert render_hpa(SITE, RELEASE, make_spec(replicas__min=0, **TARGET), POLICY)["spec"]["minReplicas"] == 1


def test_scaled_object_wakes_a_model_by_requests_at_the_gateway() -> None:
    spec = render_scaled_object(SITE, RELEASE, make_spec(replicas__min=0, **TARGET), POLICY)["spec"]
    assert (spec["minReplicaCount"], spec["maxReplicaCount"]) == (0, 4)
    tokens, waiting, demand = (trigger["metadata"] for trigger in spec["triggers"])
    assert tokens["query"] == f'sum(plnt_tokens_per_sec_per_gpu{{namespace="team",pod=~"{RELEASE}-.+"}})'
    assert (tokens["threshold"], waiting["threshold"], demand["threshold"]) == ("1500", "4", "1")
    assert 'destination_service_name=~"llama-3(-[0-9a-f]+)?"' in demand["query"]


def test_missing_metrics_are_told_with_the_remedy() -> None:
    spec = make_spec(**TARGET)
    told = describe_plan(plan_autoscaler(spec, POLICY, keda=False), spec, RELEASE, served=False)
    assert (told.ready, told.reason) == (False, "MetricsUnavailable")
    assert "install prometheus-adapter" in told.message
    assert "between 1 and 4 pods at 1500 tokens per second and GPU" in told.message


def test_moved_autoscaler_changes_nothing_but_its_target() -> None:
    before = render_hpa(SITE, RELEASE, make_spec(**TARGET), POLICY)
    moved = move_target(before, SITE, "llama-3-ffffffff")
    assert moved["spec"]["scaleTargetRef"]["name"] == "llama-3-ffffffff"
    assert {**moved["spec"], "scaleTargetRef": 0} == {**before["spec"], "scaleTargetRef": 0}
    assert find_difference(before, moved) == f"its scaleTargetRef is {moved['spec']['scaleTargetRef']}"
    assert find_difference(before, before) == ""
    assert find_difference(before, None) == "it is gone"


def test_autoscaler_without_the_claim_is_not_plnts() -> None:
    own = render_hpa(SITE, RELEASE, make_spec(**TARGET), POLICY)
    assert is_own(SITE, own)
    assert not is_own(SITE, {"metadata": {}})
    assert not is_own(SITE, {"metadata": {"annotations": {names.CLAIM_ANNOTATION: "other"}}})


def test_adapter_rules_of_an_installation_are_those_of_the_sandbox() -> None:
    values = yaml.safe_load((DEPLOY / "prometheus-adapter" / "values.yaml").read_text())
    assert values["rules"]["custom"] == render_adapter_config()["rules"]
