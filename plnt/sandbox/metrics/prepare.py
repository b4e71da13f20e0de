"""What a sandbox with metrics needs before its servers start, and in its cluster."""

from contextlib import suppress
from typing import Any

from plnt.clients.kube import SERVICES, Kube
from plnt.errors import ApiUnavailable
from plnt.model.autoscaler import METRICS_API
from plnt.sandbox import cluster
from plnt.sandbox.component import Site
from plnt.sandbox.metrics import config
from plnt.sandbox.metrics.__main__ import POD_MONITORS, RULES
from plnt.sandbox.state import write_json

VERSIONS = ("v1beta1", "v1beta2")
"""Versions of the metrics API that the adapter serves; the autoscaler asks for the newer one first."""


def write_metrics_files(site: Site) -> None:
    """Write the configuration of Prometheus and its adapter, and the empty files that the feed fills."""
    root = site.state.root
    config.metrics_folder(root).mkdir(parents=True, exist_ok=True)
    write_json(config.targets_file(root), [])
    write_json(config.rules_file(root), {"groups": []})
    write_json(config.prometheus_config(root), config.render_prometheus_config(root))
    write_json(config.adapter_config(root), config.render_adapter_config())


async def register_metrics(site: Site, kube: Kube) -> None:
    """Apply the operator's kinds, and let the API server ask the adapter for the metrics of pods."""
    assert site.programs.metrics is not None
    for file in site.programs.metrics.crds:
        for body in cluster.read_manifests(file):
            await cluster.ensure(kube, cluster.CRDS, body)
    for resource in (POD_MONITORS, RULES):
        await cluster.wait_served(kube, resource)
    await cluster.ensure(kube, SERVICES, config.render_service(), config.ADAPTER_NAMESPACE)
    for version in VERSIONS:
        body = config.render_api_service(version, site.block["prometheus-adapter"])
        await cluster.ensure(kube, config.API_SERVICES, body)


async def find_metrics(kube: Kube) -> set[str]:
    """Give the metrics that the API server offers, such as ``pods/plnt_requests_waiting``; empty while it has none."""
    found: dict[str, Any] = {}
    with suppress(ApiUnavailable):
        found = await kube.discover(f"{METRICS_API}/v1beta1")
    return {entry["name"] for entry in found.get("resources") or []}
