"""The product's own processes, started as an installation starts them, by their commands and settings."""

import sys
from collections.abc import Mapping

from plnt.sandbox import backing
from plnt.sandbox.component import Component, Site, clean_environment
from plnt.sandbox.sources.components import list_settings

POOLS = ("gpu", "weights", "deploy", "smoke", "promote")
PRODUCT = ("bridge", "control", *POOLS)
CACHE_VOLUME = '{"nfs": {"server": "weights.plnt.test", "path": "/"}}'
POLICY = {
    "PLNT_BAKE_SECONDS": "5",
    "PLNT_DRAIN_SECONDS": "1",
    "PLNT_RESYNC_SECONDS": "10",
    "PLNT_GPU_POLL_SECONDS": "1",
}
"""Short times: a stub engine needs no minutes."""


def list_product(site: Site) -> list[Component]:
    """Give the bridge, the workflow worker and the pools, as an installation runs them."""
    weights = {
        "PLNT_CACHE_DIR": str(site.state.cache),
        "AWS_ENDPOINT_URL_S3": site.s3,
        "AWS_ACCESS_KEY_ID": backing.S3_ACCESS_KEY,
        "AWS_SECRET_ACCESS_KEY": backing.S3_SECRET_KEY,
        "AWS_REGION": backing.S3_REGION,
        **list_settings(site),
    }
    helm = {f"HELM_{kind}_HOME": str(site.state.data / "helm" / kind.lower()) for kind in ("CACHE", "CONFIG", "DATA")}
    volume = {"PLNT_CACHE_VOLUME": CACHE_VOLUME}
    own: dict[str, Mapping[str, str]] = {
        "bridge": POLICY,
        "weights": {**volume, **weights},
        "deploy": {**volume, **helm, "HELM_DRIVER": "configmap"},
        "smoke": {"HTTP_PROXY": site.envoy},
    }
    return [_process(site, name, own.get(name, {})) for name in PRODUCT]


def _process(site: Site, name: str, own: Mapping[str, str]) -> Component:
    modules = {"bridge": ("bridge",), "control": ("workflows",)}
    port = site.block[name]
    env = {
        **clean_environment(),
        "PATH": site.path,
        "KUBECONFIG": str(site.state.kubeconfig_of(name)),
        "TEMPORAL_ADDRESS": site.temporal,
        "PLNT_HEALTH_PORT": str(port),
        **own,
        **site.overrides,
    }
    return Component(
        name,
        (sys.executable, "-m", *modules.get(name, ("activities", name))),
        env,
        f"tcp://127.0.0.1:{port}",
        (port,),
        restarts=True,
        stop_seconds=10.0,
    )
