from typing import Any

import pytest

from plnt.sandbox.mesh.clusters import render_clusters


def service(name: str, *ports: tuple[str, int]) -> dict[str, Any]:
    listed = [{"name": port, "port": number} for port, number in ports]
    return {"metadata": {"namespace": "default", "name": name}, "spec": {"ports": listed}}


def part(service: str, endpoints: list[dict[str, Any]], port: int = 8000) -> dict[str, Any]:
    return {
        "metadata": {"namespace": "default", "labels": {"kubernetes.io/service-name": service}},
        "ports": [{"name": "http", "port": port}, {"name": "metrics", "port": 9000}],
        "endpoints": endpoints,
    }


def endpoint(address: str, **conditions: bool) -> dict[str, Any]:
    return {"addresses": [address], "conditions": conditions}


def render(services: list[dict[str, Any]], slices: list[dict[str, Any]]) -> dict[str, list[str]]:
    """Give the addresses of each cluster."""
    found = {}
    for cluster in render_clusters(services, slices, "cluster.local")["resources"]:
        members = cluster["load_assignment"]["endpoints"][0]["lb_endpoints"]
        sockets = [member["endpoint"]["address"]["socket_address"] for member in members]
        found[cluster["name"]] = [f"{socket['address']}:{socket['port_value']}" for socket in sockets]
    return found


LLAMA = "outbound|8000||llama.default.svc.cluster.local"


def test_ready_endpoints_are_reached_on_loopback_at_the_pods_own_port() -> None:
    slices = [
        part("llama", [endpoint("10.101.0.2", ready=True)], 8080),
        part("llama", [endpoint("10.101.0.1", ready=True)]),
    ]
    assert render([service("llama", ("http", 8000))], slices) == {LLAMA: ["127.101.0.1:8000", "127.101.0.2:8080"]}


@pytest.mark.parametrize(
    "gone",
    [endpoint("10.101.0.1", ready=False), endpoint("10.101.0.1"), endpoint("10.101.0.1", ready=False, serving=True)],
)
def test_endpoint_that_is_not_ready_is_left_out(gone: dict[str, Any]) -> None:
    assert render([service("llama", ("http", 8000))], [part("llama", [gone])]) == {LLAMA: []}


def test_service_without_endpoints_has_an_empty_cluster() -> None:
    assert render([service("llama", ("http", 8000))], [part("other", [endpoint("10.101.0.1", ready=True)])]) == {
        LLAMA: []
    }


def test_other_ports_are_no_business_of_the_mesh() -> None:
    assert render([service("db", ("pg", 5432))], []) == {}


def test_order_of_the_cluster_does_not_depend_on_the_order_of_the_list() -> None:
    services = [service("b", ("http", 8000)), service("a", ("http", 8000))]
    slices = [part("a", [endpoint("10.1.0.2", ready=True), endpoint("10.1.0.1", ready=True)])]
    assert render_clusters(services, slices, "x") == render_clusters(services[::-1], slices, "x")
    assert list(render(services, slices).values()) == [["127.1.0.1:8000", "127.1.0.2:8000"], []]
