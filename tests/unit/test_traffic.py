"""What routes and Services say, written and read."""

import pytest

from plnt.model import traffic
from plnt.model.messages import ServingRecord
from plnt.model.traffic import Site

SITE = Site(namespace="default", name="a.b", base="a-b", cluster_domain="corp.internal", run_id="r")
RECORD = ServingRecord(revision="00000001", release="a-b-00000001", generation=1, identity="i", pods_digest="d")


@pytest.mark.parametrize(
    ("stable", "percent", "weights"),
    [
        pytest.param("old", 5, {"old": 95, "new": 5}, id="share"),
        pytest.param("old", 100, {"old": 0, "new": 100}, id="the stable one stays a destination"),
        pytest.param(None, 5, {"new": 100}, id="nothing serves"),
        pytest.param("new", 100, {"new": 100}, id="the canary serves already"),
    ],
)
def test_weights_sum_to_100(stable: str | None, percent: int, weights: dict[str, int]) -> None:
    chosen = traffic.choose_weights(stable, "new", percent)
    assert list(chosen.items()) == list(weights.items())


@pytest.mark.parametrize("weights", [{"old": 95, "new": 5}, {"old": 0, "new": 100}, {"new": 100}])
def test_route_reads_back_as_it_was_rendered(weights: dict[str, int]) -> None:
    route = traffic.render_route(SITE, weights, "old")
    assert traffic.read_weights("a-b", route) == weights
    assert traffic.read_serving(route) == "old"
    assert traffic.is_own_route(SITE, route)
    assert traffic.find_route_difference(SITE, route, route) == ""


def test_route_uses_the_clusters_own_domain() -> None:
    spec = traffic.render_route(SITE, {"new": 100}, None)["spec"]
    assert spec["hosts"] == ["a-b.default.svc.corp.internal"]
    assert spec["http"][0]["route"][0]["destination"]["host"] == "a-b-new.default.svc.corp.internal"


def test_single_destination_gets_everything_whatever_its_weight() -> None:
    route = traffic.render_route(SITE, {"new": 0}, None)
    assert traffic.read_weights("a-b", route) == {"new": 100}


def test_route_without_http_has_no_weights() -> None:
    assert traffic.read_weights("a-b", {"metadata": {}, "spec": {}}) == {}


def test_route_difference_names_what_differs() -> None:
    wanted = traffic.render_route(SITE, {"old": 95, "new": 5}, "old")
    other = traffic.render_route(SITE, {"old": 50, "new": 50}, "old")
    assert traffic.find_route_difference(SITE, wanted, None) == "it is gone"
    assert "{'old': 50, 'new': 50}" in traffic.find_route_difference(SITE, wanted, other)
    other = traffic.render_route(SITE, {"old": 95, "new": 5}, "new")
    assert "plnt.work/serving is new" in traffic.find_route_difference(SITE, wanted, other)
    other = {**wanted, "spec": {**wanted["spec"], "hosts": ["x"]}}
    assert "hosts are ['x']" in traffic.find_route_difference(SITE, wanted, other)
    other = {**wanted, "spec": {**wanted["spec"], "http": wanted["spec"]["http"] * 2}}
    assert "did not write" in traffic.find_route_difference(SITE, wanted, other)


def test_front_service_reads_back_as_it_was_rendered() -> None:
    front = traffic.render_front(SITE, RECORD)
    assert traffic.read_record(front) == RECORD
    assert traffic.read_selected_release(front) == RECORD.release
    assert traffic.read_claim(front) == "a.b"
    assert traffic.find_front_difference(front, front) == ""


def test_front_service_without_record_selects_nothing() -> None:
    front = traffic.render_front(SITE, None)
    assert "selector" not in front["spec"]
    assert traffic.read_record(front) is None
    assert traffic.read_selected_release(front) is None
    assert "selector is" in traffic.find_front_difference(front, traffic.render_front(SITE, RECORD))


@pytest.mark.parametrize(
    ("endpoint", "counts"),
    [
        pytest.param({"conditions": {"ready": True}, "targetRef": {"name": "a-b-00000001-x-y"}}, True, id="ready"),
        pytest.param({"conditions": {}, "targetRef": {"name": "a-b-00000001-x-y"}}, True, id="no condition"),
        pytest.param({"conditions": {"ready": False}, "targetRef": {"name": "a-b-00000001-x-y"}}, False, id="unready"),
        pytest.param({"conditions": {"ready": True}, "targetRef": {"name": "a-b-00000002-x-y"}}, False, id="old pod"),
        pytest.param({"conditions": {"ready": True}}, False, id="no pod"),
    ],
)
def test_endpoint_counts_when_it_is_a_ready_pod_of_the_release(endpoint: dict[str, object], counts: bool) -> None:
    assert traffic.has_ready_endpoint([{"endpoints": None}, {"endpoints": [endpoint]}], RECORD.release) is counts
