"""What plnt and its charts write of other projects' kinds, against these kinds as their makers publish them."""

import copy
from typing import Any

import jsonschema
import pytest

from plnt.model.autoscaler import render_scaled_object
from plnt.model.desired import Policy
from plnt.model.traffic import Site
from plnt.model.workflow_run import Runtime
from plnt.sandbox.programs import Programs
from plnt.sandbox.toolchain import GoMissing
from tests.charts.published_kinds import (
    POD_MONITOR,
    PROMETHEUS_RULE,
    SCALED_OBJECT,
    Kind,
    NotDownloaded,
    read_kind,
    validate_against,
)
from tests.charts.test_metric_rules import render
from tests.fakes.steps import make_spec

pytestmark = pytest.mark.timeout(300)

KINDS = {"PodMonitor": POD_MONITOR, "PrometheusRule": PROMETHEUS_RULE}
SITE = Site(namespace="team", name="llama.3", base="llama-3", cluster_domain="cluster.local", run_id="run-1")


def require(*kinds: Kind) -> None:
    """Skip where a kind is neither in Go's cache nor to be downloaded; the sandbox's tests use a real server."""
    try:
        for kind in kinds:
            read_kind(kind)
    except (NotDownloaded, GoMissing) as error:
        pytest.skip(str(error))


def scaled_object() -> dict[str, Any]:
    spec = make_spec(replicas__min=0, autoscaling__targetTokensPerSecond=100)
    return render_scaled_object(SITE, "llama-3-0a1b2c3d", spec, Policy(prometheus_url="http://prometheus:9090"))


@pytest.mark.parametrize("runtime", list(Runtime))
def test_charts_objects_are_valid_for_the_prometheus_operator(programs: Programs, runtime: Runtime) -> None:
    require(*KINDS.values())
    objects = render(programs, runtime, *KINDS, metrics={"labels": {"team": "a"}, "windowSeconds": 60})
    for name, kind in KINDS.items():
        validate_against(kind, objects[name])


def test_scaled_object_is_valid_for_keda() -> None:
    require(SCALED_OBJECT)
    validate_against(SCALED_OBJECT, scaled_object())


@pytest.mark.parametrize(
    ("place", "value"),
    [
        ("cooldown", 300),
        ("minReplicaCount", "0"),
        ("triggers", []),
        ("advanced", {"horizontalPodAutoscalerConfig": {"behaviour": {}}}),
    ],
)
def test_check_refuses_what_an_api_server_would(place: str, value: Any) -> None:
    require(SCALED_OBJECT)
    wrong = copy.deepcopy(scaled_object())
    wrong["spec"][place] = value
    with pytest.raises(jsonschema.ValidationError):
        validate_against(SCALED_OBJECT, wrong)
