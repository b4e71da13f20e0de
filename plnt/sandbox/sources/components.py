"""The processes of the further sources, and how the weights pool finds them."""

import json
import sys
from pathlib import Path

from plnt.sandbox.component import Component, Site, clean_environment
from plnt.sandbox.state import write_json

SOURCES = ("gs", "registry", "hub")
REGISTRY = "registry.example.com"
"""Host of the examples, for which the sandbox's registry is the mirror."""


def list_sources(site: Site) -> list[Component]:
    """Give the servers of ``gs://``, ``oci://`` and ``hf://``, if they were asked for."""
    if site.programs.sources is None:
        return []
    folder = site.programs.sources.folder
    return [_gs(site, folder), _registry(site, folder), _hub(site)]


def source_url(site: Site, name: str) -> str:
    """Give the URL of a source's server, by its component's name."""
    return f"http://127.0.0.1:{site.block[name]}"


def list_settings(site: Site) -> dict[str, str]:
    """Give the weights pool's settings for them, as an installation names its own mirrors and registries."""
    if site.programs.sources is None:
        return {}
    return {
        "STORAGE_EMULATOR_HOST": source_url(site, "gs"),
        "HF_ENDPOINT": source_url(site, "hub"),
        "PLNT_WEIGHTS_PRIVATE_HOSTS": f"127.0.0.1:{site.block['registry']},localhost:{site.block['hub']}",
        "PLNT_OCI_MIRRORS": json.dumps({REGISTRY: source_url(site, "registry")}),
    }


def write_source_files(site: Site) -> None:
    """Write the registry's configuration; JSON is YAML."""
    config = render_registry(site.state.data / "registry", site.block["registry"])
    write_json(_registry_config(site), config)


def render_registry(root: Path, port: int) -> dict[str, object]:
    """Give the registry's configuration."""
    return {
        "version": 0.1,
        "log": {"level": "warn", "accesslog": {"disabled": True}},
        "storage": {"filesystem": {"rootdirectory": str(root)}, "delete": {"enabled": True}},
        "http": {"addr": f"127.0.0.1:{port}"},
    }


def _registry_config(site: Site) -> Path:
    return site.state.data / "registry.json"


def _gs(site: Site, folder: Path) -> Component:
    return Component(
        "gs",
        gs_command(folder, site.state.data / "gs", site.block["gs"]),
        clean_environment(),
        f"{source_url(site, 'gs')}/_internal/healthcheck",
        site.ports("gs"),
    )


def gs_command(folder: Path, root: Path, port: int) -> tuple[str, ...]:
    """Give the command of fake-gcs-server; with buckets in files, so that a large model stays out of memory."""
    return (
        str(folder / "fake-gcs-server"),
        "-backend=filesystem",
        f"-filesystem-root={root}",
        "-scheme=http",
        "-host=127.0.0.1",
        f"-port={port}",
        f"-public-host=127.0.0.1:{port}",
        "-log-level=warn",
    )


def _registry(site: Site, folder: Path) -> Component:
    command = (str(folder / "registry"), "serve", str(_registry_config(site)))
    env = {**clean_environment(), "OTEL_TRACES_EXPORTER": "none"}
    return Component("registry", command, env, f"{source_url(site, 'registry')}/v2/", site.ports("registry"))


def _hub(site: Site) -> Component:
    own = ("--root", str(hub_root(site)), "--port", str(site.block["hub"]))
    command = (sys.executable, "-m", "plnt.sandbox.sources", *own)
    return Component("hub", command, clean_environment(), f"{source_url(site, 'hub')}/healthz", site.ports("hub"))


def hub_root(site: Site) -> Path:
    """Give the folder of the Hub's repositories."""
    return site.state.data / "hub"
