"""The servers beside Kubernetes: Temporal, S3, the mesh, and the stand-in for the nodes' kubelets."""

import sys

from plnt.model.search_attributes import SEARCH_ATTRIBUTES
from plnt.sandbox.component import Component, Site, clean_environment
from plnt.sandbox.mesh import config as mesh

S3_ACCESS_KEY = "plnt-sandbox"
S3_SECRET_KEY = "plnt-sandbox-secret"  # noqa: S105 - of a server on loopback that lives as long as the sandbox
S3_REGION = "us-east-1"


def s3_identities() -> dict[str, object]:
    """Give the S3 server's users: one that may do everything."""
    actions = ["Admin", "Read", "List", "Tagging", "Write"]
    keys = [{"accessKey": S3_ACCESS_KEY, "secretKey": S3_SECRET_KEY}]
    return {"identities": [{"name": "plnt", "credentials": keys, "actions": actions}]}


def list_servers(site: Site) -> list[Component]:
    """Give Temporal and the S3 server."""
    return [_temporal(site), _s3(site)]


def _temporal(site: Site) -> Component:
    ports = site.ports("temporal", "temporal-ui", "temporal-http", "temporal-metrics")
    flags = [
        f"--{flag}={port}" for flag, port in zip(("port", "ui-port", "http-port", "metrics-port"), ports, strict=True)
    ]
    attributes = [f"--search-attribute={name}={kind}" for name, kind in SEARCH_ATTRIBUTES.items()]
    command = (
        str(site.programs.temporal),
        "server",
        "start-dev",
        "--ip=127.0.0.1",
        "--ui-ip=127.0.0.1",
        *flags,
        f"--db-filename={site.state.data / 'temporal.db'}",
        "--sqlite-pragma=journal_mode=WAL",
        "--sqlite-pragma=synchronous=NORMAL",
        *attributes,
    )
    return Component("temporal", command, clean_environment(), f"tcp://{site.temporal}", ports)


def _s3(site: Site) -> Component:
    block = site.block
    flags = {
        "s3.port": "s3",
        "s3.port.grpc": "s3-grpc",
        "s3.port.iceberg": "s3-iceberg",
        "s3.port.lance": "s3-lance",
        "master.port": "s3-master",
        "master.port.grpc": "s3-master-grpc",
        "volume.port": "s3-volume",
        "volume.port.grpc": "s3-volume-grpc",
        "filer.port": "s3-filer",
        "filer.port.grpc": "s3-filer-grpc",
    }
    command = (
        str(site.programs.weed),
        "server",
        f"-dir={site.state.data / 's3'}",
        "-ip=127.0.0.1",
        "-ip.bind=127.0.0.1",
        "-s3",
        "-filer",
        f"-s3.config={site.state.data / 's3.json'}",
        "-master.telemetry=false",
        "-master.volumeSizeLimitMB=1024",
        *(f"-{flag}={block[name]}" for flag, name in flags.items()),
    )
    return Component("s3", command, clean_environment(), f"tcp://127.0.0.1:{block['s3']}", site.ports(*flags.values()))


def list_mesh(site: Site) -> list[Component]:
    """Give istiod, Envoy and the feed that tells Envoy where pods listen."""
    return [_istiod(site), _envoy(site), _feed(site)]


def _istiod(site: Site) -> Component:
    grpc, http, monitoring = ports = site.ports("istiod", "istiod-http", "istiod-monitoring")
    command = mesh.istiod_command(
        site.programs.server("pilot-discovery"),
        kubeconfig=site.state.kubeconfig_of("istiod"),
        mesh_config=site.mesh_config,
        port=grpc,
        http_port=http,
        monitoring_port=monitoring,
    )
    env = {**clean_environment(), **mesh.istiod_environment()}
    ready = f"http://127.0.0.1:{http}/ready"
    return Component("istiod", tuple(command), env, ready, ports, waits_for=("kube-apiserver",))


def _envoy(site: Site) -> Component:
    """Give Envoy, started after istiod: its back-off between two tries to connect grows to half a minute."""
    ports = site.ports("envoy", "envoy-admin")
    command = mesh.envoy_command(site.programs.envoy, site.envoy_bootstrap)
    ready = f"http://127.0.0.1:{ports[1]}/ready"
    return Component("envoy", tuple(command), clean_environment(), ready, ports, waits_for=("istiod",))


def _feed(site: Site) -> Component:
    command = (sys.executable, "-m", "plnt.sandbox.mesh", "--state", str(site.state.root))
    env = {**clean_environment(), "KUBECONFIG": str(site.state.kubeconfig_of("mesh"))}
    return Component("mesh", command, env, "")


def list_nodes(site: Site) -> list[Component]:
    """Give the stand-in that plays all nodes."""
    port = site.block["kubelet"]
    command = (
        sys.executable,
        "-m",
        "plnt.sandbox.kubelet",
        *("--state", str(site.state.root)),
        *("--port", str(port)),
        *("--range", str(site.block.range)),
    )
    env = {**clean_environment(), "PATH": site.path, "KUBECONFIG": str(site.state.kubeconfig_of("kubelet"))}
    return [Component("kubelet", command, env, f"tcp://127.0.0.1:{port}", (port,), waits_for=("kube-apiserver",))]
