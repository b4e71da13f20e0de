"""From PodMonitors and PrometheusRules to Prometheus's own files, as the Prometheus operator would do it."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from plnt.sandbox.addresses import listen_address

Manifest = Mapping[str, Any]


def render_targets(monitors: Iterable[Manifest], pods: Iterable[Manifest]) -> list[dict[str, Any]]:
    """Give the scrape targets of every pod that a PodMonitor of its namespace selects, at the address it listens on."""
    running = [pod for pod in pods if (pod.get("status") or {}).get("podIP") and _is_alive(pod)]
    found = (target for monitor in monitors for pod in running for target in _list_targets(monitor, pod))
    return sorted(found, key=lambda target: (target["labels"]["namespace"], target["labels"]["pod"]))


def render_groups(rules: Iterable[Manifest], interval: str) -> dict[str, Any]:
    """Give all rule groups, evaluated every ``interval``; names are unique across objects."""
    groups = []
    for rule in sorted(rules, key=lambda rule: (rule["metadata"]["namespace"], rule["metadata"]["name"])):
        meta = rule["metadata"]
        for group in rule["spec"].get("groups") or []:
            name = f"{meta['namespace']}/{meta['name']}/{group['name']}"
            groups.append({"name": name, "interval": interval, "rules": group["rules"]})
    return {"groups": groups}


def _is_alive(pod: Manifest) -> bool:
    return pod["metadata"].get("deletionTimestamp") is None and pod["status"].get("phase") == "Running"


def _list_targets(monitor: Manifest, pod: Manifest) -> Iterator[dict[str, Any]]:
    meta, spec = monitor["metadata"], monitor["spec"]
    wanted = (spec.get("selector") or {}).get("matchLabels") or {}
    own = pod["metadata"]
    labels = own.get("labels") or {}
    if own["namespace"] != meta["namespace"] or any(labels.get(key) != value for key, value in wanted.items()):
        return
    for endpoint in spec.get("podMetricsEndpoints") or []:
        for container, port in _find_ports(pod, endpoint.get("port", "")):
            yield {
                "targets": [f"{listen_address(pod['status']['podIP'])}:{port}"],
                "labels": {
                    "__metrics_path__": endpoint.get("path", "/metrics"),
                    "job": f"{meta['namespace']}/{meta['name']}",
                    "namespace": own["namespace"],
                    "pod": own["name"],
                    "container": container,
                    "endpoint": endpoint.get("port", ""),
                },
            }


def _find_ports(pod: Manifest, name: str) -> Iterator[tuple[str, int]]:
    for container in pod["spec"]["containers"]:
        for port in container.get("ports") or []:
            if port.get("name") == name:
                yield container["name"], port["containerPort"]
