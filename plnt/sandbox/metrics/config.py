"""How Prometheus and prometheus-adapter are started and joined to the cluster."""

from pathlib import Path
from typing import Any

from plnt.clients.kube import Resource
from plnt.model.autoscaler import METRICS_API, TOKENS_METRIC, WAITING_METRIC

API_SERVICES = Resource("apiregistration.k8s.io/v1", "apiservices")
ADAPTER_NAMESPACE = "default"
ADAPTER_SERVICE = "prometheus-adapter"
SECONDS = 1
"""Scrapes and rules each second: tests wait for them."""
RELIST = "5s"
"""How often the adapter looks for new series."""


def metrics_folder(state: Path) -> Path:
    """Give the folder in the state folder where Prometheus's configuration lies."""
    return state / "metrics"


def targets_file(state: Path) -> Path:
    """Give the file of scrape targets, which Prometheus watches."""
    return metrics_folder(state) / "targets.json"


def rules_file(state: Path) -> Path:
    """Give the file of rule groups."""
    return metrics_folder(state) / "rules.json"


def prometheus_config(state: Path) -> Path:
    """Give Prometheus's configuration file."""
    return metrics_folder(state) / "prometheus.json"


def adapter_config(state: Path) -> Path:
    """Give prometheus-adapter's configuration file."""
    return metrics_folder(state) / "adapter.json"


def render_prometheus_config(state: Path) -> dict[str, Any]:
    """Render Prometheus's configuration: what is scraped and reckoned is in the feed's files."""
    interval = f"{SECONDS}s"
    discovery = {"files": [str(targets_file(state))], "refresh_interval": "5s"}
    return {
        "global": {"scrape_interval": interval, "scrape_timeout": interval, "evaluation_interval": interval},
        "rule_files": [str(rules_file(state))],
        "scrape_configs": [{"job_name": "pods", "file_sd_configs": [discovery]}],
    }


def render_adapter_config() -> dict[str, Any]:
    """Render prometheus-adapter's rules, one value for each pod; ``deploy/prometheus-adapter`` holds the same."""
    return {"rules": [_render_rule(name) for name in (TOKENS_METRIC, WAITING_METRIC)]}


def _render_rule(name: str) -> dict[str, Any]:
    return {
        "seriesQuery": f'{name}{{namespace!="",pod!=""}}',
        "resources": {"overrides": {"namespace": {"resource": "namespace"}, "pod": {"resource": "pod"}}},
        "name": {"as": name},
        "metricsQuery": "max(<<.Series>>{<<.LabelMatchers>>}) by (<<.GroupBy>>)",
    }


def render_service() -> dict[str, Any]:
    """Render the Service by which the API server finds the adapter; cluster addresses are not routed here."""
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": ADAPTER_SERVICE, "namespace": ADAPTER_NAMESPACE},
        "spec": {"type": "ExternalName", "externalName": "localhost"},
    }


def render_api_service(version: str, port: int) -> dict[str, Any]:
    """Render the registration of one version of the API of pods' metrics."""
    return {
        "apiVersion": API_SERVICES.api,
        "kind": "APIService",
        "metadata": {"name": f"{version}.{METRICS_API}"},
        "spec": {
            "group": METRICS_API,
            "version": version,
            "groupPriorityMinimum": 100,
            "versionPriority": 100,
            "insecureSkipTLSVerify": True,
            "service": {"name": ADAPTER_SERVICE, "namespace": ADAPTER_NAMESPACE, "port": port},
        },
    }
