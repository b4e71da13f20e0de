"""PodMonitors and rules of the cluster as Prometheus's own files."""

from typing import Any

from plnt.sandbox.metrics.targets import render_groups, render_targets


def pod(name: str, *, namespace: str = "team", labels: dict[str, str] | None = None, **meta: Any) -> dict[str, Any]:
    port = {"name": "http", "containerPort": 8000}
    return {
        "metadata": {"name": name, "namespace": namespace, "labels": labels or {"release": "a"}, **meta},
        "spec": {"containers": [{"name": "engine", "ports": [port]}]},
        "status": {"phase": "Running", "podIP": "10.7.0.9"},
    }


MONITOR = {
    "metadata": {"name": "a", "namespace": "team"},
    "spec": {
        "selector": {"matchLabels": {"release": "a"}},
        "podMetricsEndpoints": [{"port": "http", "path": "/prometheus/metrics"}],
    },
}


def test_selected_pods_are_scraped_where_they_listen() -> None:
    others = [
        pod("b", labels={"release": "b"}),
        pod("c", namespace="other"),
        pod("d", deletionTimestamp="2026-01-01T00:00:00Z"),
    ]
    (target,) = render_targets([MONITOR], [pod("a"), *others])
    assert target["targets"] == ["127.7.0.9:8000"]
    assert target["labels"] == {
        "__metrics_path__": "/prometheus/metrics",
        "job": "team/a",
        "namespace": "team",
        "pod": "a",
        "container": "engine",
        "endpoint": "http",
    }


def test_rule_groups_keep_their_rules_and_get_a_short_interval() -> None:
    rule = {"record": "x", "expr": "1"}
    group = {"name": "g", "interval": "15s", "rules": [rule]}
    rules = [{"metadata": {"name": name, "namespace": "team"}, "spec": {"groups": [group]}} for name in ("b", "a")]
    assert render_groups(rules, "1s")["groups"] == [
        {"name": "team/a/g", "interval": "1s", "rules": [rule]},
        {"name": "team/b/g", "interval": "1s", "rules": [rule]},
    ]
