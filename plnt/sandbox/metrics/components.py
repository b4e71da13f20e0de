"""The processes of the sandbox's metrics."""

import sys
from pathlib import Path

from plnt.sandbox.component import Component, Site, clean_environment
from plnt.sandbox.metrics import config

METRICS = ("prometheus", "prometheus-adapter", "metrics")


def list_metrics(site: Site) -> list[Component]:
    """Give Prometheus, its adapter and the feed, if metrics were asked for."""
    if site.programs.metrics is None:
        return []
    folder = site.programs.metrics.folder
    return [_prometheus(site, folder), _adapter(site, folder), _feed(site)]


def prometheus_url(site: Site) -> str:
    """Give Prometheus's URL."""
    return f"http://127.0.0.1:{site.block['prometheus']}"


def _prometheus(site: Site, folder: Path) -> Component:
    root = site.state.root
    command = (
        str(folder / "prometheus"),
        f"--config.file={config.prometheus_config(root)}",
        f"--storage.tsdb.path={site.state.data / 'prometheus'}",
        "--storage.tsdb.retention.time=2h",
        f"--web.listen-address=127.0.0.1:{site.block['prometheus']}",
        "--web.enable-lifecycle",
        "--log.level=warn",
    )
    ready = f"{prometheus_url(site)}/-/ready"
    return Component("prometheus", command, clean_environment(), ready, site.ports("prometheus"))


def _adapter(site: Site, folder: Path) -> Component:
    name = "prometheus-adapter"
    kubeconfig, port = site.state.kubeconfig_of(name), site.block[name]
    command = (
        str(folder / name),
        *(f"--{use}-kubeconfig={kubeconfig}" for use in ("lister", "authentication", "authorization")),
        f"--secure-port={port}",
        "--bind-address=127.0.0.1",
        f"--cert-dir={site.state.data / name}",
        f"--prometheus-url={prometheus_url(site)}",
        f"--metrics-relist-interval={config.RELIST}",
        f"--config={config.adapter_config(site.state.root)}",
    )
    return Component(
        name,
        command,
        clean_environment(),
        f"tcp://127.0.0.1:{port}",
        site.ports(name),
        waits_for=("kube-apiserver",),
    )


def _feed(site: Site) -> Component:
    own = ("--state", str(site.state.root), "--prometheus", prometheus_url(site))
    env = {**clean_environment(), "KUBECONFIG": str(site.state.kubeconfig_of("metrics"))}
    return Component("metrics", (sys.executable, "-m", "plnt.sandbox.metrics", *own), env, "")
