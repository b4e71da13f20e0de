"""Envoy's clusters of the sandbox's Services, under the names that istiod's routes use."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from plnt.model import names
from plnt.sandbox.addresses import listen_address

Manifest = Mapping[str, Any]
Endpoint = tuple[str, int]

SERVICE_LABEL = "kubernetes.io/service-name"
"""Label of an EndpointSlice that holds its Service's name."""
_CLUSTER_TYPE = "type.googleapis.com/envoy.config.cluster.v3.Cluster"


def render_clusters(services: Iterable[Manifest], slices: Iterable[Manifest], domain: str) -> dict[str, Any]:
    """Render the discovery response for every Service with plnt's port, ready endpoints only.

    A Service without ready endpoints gets an empty cluster: Envoy answers 503. Order is fixed, so that what has not
    changed reads the same and Envoy leaves its connections alone.
    """
    by_service: dict[tuple[str, str], list[Manifest]] = {}
    for part in slices:
        meta = part["metadata"]
        service = (meta["namespace"], (meta.get("labels") or {}).get(SERVICE_LABEL, ""))
        by_service.setdefault(service, []).append(part)
    return {
        "resources": [
            _render_cluster(host, sorted(set(_ready_endpoints(by_service.get(key, []), port))))
            for key, host, port in sorted(_list_served(services, domain))
        ]
    }


def cluster_name(host: str) -> str:
    """Name the cluster of a Service's host, as istiod does."""
    return f"outbound|{names.SERVICE_PORT}||{host}"


def _list_served(services: Iterable[Manifest], domain: str) -> Iterator[tuple[tuple[str, str], str, str]]:
    """Give key, host and port name of each Service with plnt's port."""
    for service in services:
        meta = service["metadata"]
        for port in service["spec"].get("ports") or []:
            if port["port"] == names.SERVICE_PORT:
                host = names.service_host(meta["name"], meta["namespace"], domain)
                yield (meta["namespace"], meta["name"]), host, port.get("name", "")


def _ready_endpoints(slices: Iterable[Manifest], port_name: str) -> Iterator[Endpoint]:
    for part in slices:
        ports = [p["port"] for p in part.get("ports") or [] if (p.get("name") or "") == port_name and p.get("port")]
        for endpoint in part.get("endpoints") or []:
            if (endpoint.get("conditions") or {}).get("ready"):
                yield from ((listen_address(ip), port) for ip in endpoint["addresses"] for port in ports)


def _render_cluster(host: str, endpoints: Iterable[Endpoint]) -> dict[str, Any]:
    name = cluster_name(host)
    members = [
        {"endpoint": {"address": {"socket_address": {"address": address, "port_value": port}}}}
        for address, port in endpoints
    ]
    return {
        "@type": _CLUSTER_TYPE,
        "name": name,
        "type": "STATIC",
        "connect_timeout": "1s",
        "load_assignment": {"cluster_name": name, "endpoints": [{"lb_endpoints": members}]},
    }
