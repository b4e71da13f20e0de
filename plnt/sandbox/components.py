"""What a sandbox starts: each component's command, environment, ports and sign of life."""

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import plnt
from plnt.sandbox.ports import Block
from plnt.sandbox.programs import Programs
from plnt.sandbox.state import State

POOLS = ("gpu", "weights", "deploy", "smoke", "promote")
PRODUCT = ("bridge", "control", *POOLS)
CONTROL_PLANE = ("etcd", "kube-apiserver", "kube-controller-manager")
WIDE_USERS = ("plnt-kube-controller-manager", "plnt-kube-scheduler", "plnt-istiod", "plnt-kubelet", "plnt-mesh")
"""Users of the cluster's own parts: in ``system:masters``, so that they work before any role is bound."""
SEARCH_ATTRIBUTES = {
    "PlntPhase": "Keyword",
    "PlntNamespace": "Keyword",
    "PlntModel": "Keyword",
    "PlntRuntime": "Keyword",
    "PlntGpuClass": "Keyword",
    "PlntGeneration": "Int",
}
S3_ACCESS_KEY = "plnt-sandbox"
S3_SECRET_KEY = "plnt-sandbox-secret"  # noqa: S105 - of a server on loopback that lives as long as the sandbox
S3_REGION = "us-east-1"
CACHE_VOLUME = '{"nfs": {"server": "weights.plnt.test", "path": "/"}}'
POLICY = {
    "PLNT_BAKE_SECONDS": "5",
    "PLNT_DRAIN_SECONDS": "1",
    "PLNT_RESYNC_SECONDS": "10",
    "PLNT_GPU_POLL_SECONDS": "1",
}
"""Short times: a stub engine needs no minutes."""
_FOREIGN = ("KUBE", "TEMPORAL_", "AWS_", "PLNT_", "HELM_", "OTEL_")
_PROXIES = ("http_proxy", "https_proxy", "all_proxy", "no_proxy")


@dataclass(frozen=True, slots=True)
class Component:
    """One process: ``ready`` is what ``probe.answers`` asks; ``waits_for`` names what it would give up without."""

    name: str
    command: tuple[str, ...]
    env: Mapping[str, str]
    ready: str
    ports: tuple[int, ...] = ()
    waits_for: tuple[str, ...] = ()
    restarts: bool = False
    stop_seconds: float = 5.0


@dataclass(frozen=True, slots=True)
class Site:
    """Where a sandbox stands, from which every command is derived."""

    state: State
    block: Block
    programs: Programs
    overrides: Mapping[str, str] = field(default_factory=dict)

    @property
    def api(self) -> str:
        """URL of the API server."""
        return f"https://127.0.0.1:{self.block['kube-apiserver']}"

    @property
    def temporal(self) -> str:
        """Address of Temporal's frontend."""
        return f"127.0.0.1:{self.block['temporal']}"

    @property
    def web_ui(self) -> str:
        """URL of Temporal's Web UI."""
        return f"http://127.0.0.1:{self.block['temporal-ui']}"

    @property
    def s3(self) -> str:
        """URL of the S3 server."""
        return f"http://127.0.0.1:{self.block['s3']}"

    @property
    def envoy(self) -> str:
        """URL of the proxy through which Services are reached."""
        return f"http://127.0.0.1:{self.block['envoy']}"

    @property
    def path(self) -> str:
        """PATH with the sandbox's programs first."""
        folders = [self.programs.servers, self.programs.kubectl.parent, self.programs.temporal.parent]
        return os.pathsep.join([*dict.fromkeys(map(str, folders)), os.environ.get("PATH", os.defpath)])


def list_components(site: Site) -> list[Component]:
    """Give all components in the order in which they are shown."""
    return [*list_control_plane(site), *list_servers(site), *list_mesh(site), _kubelet(site), *list_product(site)]


def list_control_plane(site: Site) -> list[Component]:
    """Give etcd, the API server, the controllers and the scheduler."""
    return [_etcd(site), _apiserver(site), _controllers(site), _scheduler(site)]


def clean_environment() -> dict[str, str]:
    """Give this process's environment without what would point a child at another installation."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(_FOREIGN) and k.lower() not in _PROXIES}
    return {**kept, "PYTHONPATH": str(Path(plnt.__file__).parents[1]), "PYTHONUNBUFFERED": "1"}


def _etcd(site: Site) -> Component:
    client, peer = (f"http://127.0.0.1:{site.block[name]}" for name in ("etcd", "etcd-peer"))
    command = (
        str(site.programs.server("etcd")),
        f"--data-dir={site.state.data / 'etcd'}",
        f"--listen-client-urls={client}",
        f"--advertise-client-urls={client}",
        f"--listen-peer-urls={peer}",
        f"--initial-advertise-peer-urls={peer}",
        f"--initial-cluster=default={peer}",
        "--unsafe-no-fsync=true",
        "--log-level=warn",
    )
    return Component("etcd", command, clean_environment(), f"{client}/health", _ports(site, "etcd", "etcd-peer"))


def _apiserver(site: Site) -> Component:
    pki, port = site.state.pki, site.block["kube-apiserver"]
    command = (
        str(site.programs.server("kube-apiserver")),
        f"--etcd-servers=http://127.0.0.1:{site.block['etcd']}",
        f"--secure-port={port}",
        "--bind-address=127.0.0.1",
        "--service-cluster-ip-range=10.0.0.0/16",
        "--endpoint-reconciler-type=none",
        "--authorization-mode=RBAC",
        "--allow-privileged=true",
        f"--cert-dir={pki}",
        f"--client-ca-file={pki / 'ca.crt'}",
        f"--tls-cert-file={pki / 'apiserver.crt'}",
        f"--tls-private-key-file={pki / 'apiserver.key'}",
        f"--service-account-issuer={site.api}/",
        f"--service-account-key-file={pki / 'service-accounts.pub'}",
        f"--service-account-signing-key-file={pki / 'service-accounts.key'}",
        f"--kubelet-client-certificate={pki / 'kubelet-client.crt'}",
        f"--kubelet-client-key={pki / 'kubelet-client.key'}",
        f"--kubelet-certificate-authority={pki / 'ca.crt'}",
        "--kubelet-preferred-address-types=InternalIP",
        f"--requestheader-client-ca-file={pki / 'ca.crt'}",
        "--requestheader-allowed-names=front-proxy",
        "--requestheader-extra-headers-prefix=X-Remote-Extra-",
        "--requestheader-group-headers=X-Remote-Group",
        "--requestheader-username-headers=X-Remote-User",
        f"--proxy-client-cert-file={pki / 'front-proxy.crt'}",
        f"--proxy-client-key-file={pki / 'front-proxy.key'}",
    )
    ready = f"{site.api}/readyz"
    return Component("kube-apiserver", command, clean_environment(), ready, (port,), waits_for=("etcd",))


def _controllers(site: Site) -> Component:
    name = "kube-controller-manager"
    kubeconfig = site.state.kubeconfig_of(name)
    command = (
        str(site.programs.server(name)),
        f"--kubeconfig={kubeconfig}",
        f"--authentication-kubeconfig={kubeconfig}",
        f"--authorization-kubeconfig={kubeconfig}",
        f"--service-account-private-key-file={site.state.pki / 'service-accounts.key'}",
        f"--root-ca-file={site.state.pki / 'ca.crt'}",
        f"--cert-dir={site.state.data / name}",
        "--leader-elect=false",
        "--use-service-account-credentials=false",
        "--bind-address=127.0.0.1",
        f"--secure-port={site.block[name]}",
        "--kube-api-qps=500",
        "--kube-api-burst=1000",
        "--horizontal-pod-autoscaler-sync-period=5s",
        "--controllers=*,-node-ipam-controller",
    )
    return Component(
        name,
        command,
        clean_environment(),
        f"tcp://127.0.0.1:{site.block[name]}",
        _ports(site, name),
        waits_for=("kube-apiserver",),
    )


def _scheduler(site: Site) -> Component:
    name = "kube-scheduler"
    kubeconfig = site.state.kubeconfig_of(name)
    command = (
        str(site.programs.server(name)),
        f"--kubeconfig={kubeconfig}",
        f"--authentication-kubeconfig={kubeconfig}",
        f"--authorization-kubeconfig={kubeconfig}",
        f"--cert-dir={site.state.data / name}",
        "--leader-elect=false",
        "--bind-address=127.0.0.1",
        f"--secure-port={site.block[name]}",
    )
    return Component(
        name,
        command,
        clean_environment(),
        f"tcp://127.0.0.1:{site.block[name]}",
        _ports(site, name),
        waits_for=("kube-apiserver",),
    )


def list_servers(site: Site) -> list[Component]:
    """Give Temporal and the S3 server."""
    return [_temporal(site), _s3(site)]


def _temporal(site: Site) -> Component:
    ports = _ports(site, "temporal", "temporal-ui", "temporal-http", "temporal-metrics")
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
    return Component(
        "s3", command, clean_environment(), f"tcp://127.0.0.1:{block['s3']}", _ports(site, *flags.values())
    )


def list_mesh(_: Site) -> list[Component]:
    """Give istiod, Envoy and the feed that tells Envoy the pods' addresses."""
    return []


def _kubelet(site: Site) -> Component:
    port = site.block["kubelet"]
    command = _module(site, "plnt.sandbox.kubelet", "--port", str(port), "--range", str(site.block.range))
    env = {**clean_environment(), "KUBECONFIG": str(site.state.kubeconfig_of("kubelet"))}
    return Component("kubelet", command, env, f"tcp://127.0.0.1:{port}", (port,), waits_for=("kube-apiserver",))


def list_product(site: Site) -> list[Component]:
    """Give the bridge, the workflow worker and the pools, as an installation runs them."""
    weights = {
        "PLNT_CACHE_DIR": str(site.state.cache),
        "AWS_ENDPOINT_URL_S3": site.s3,
        "AWS_ACCESS_KEY_ID": S3_ACCESS_KEY,
        "AWS_SECRET_ACCESS_KEY": S3_SECRET_KEY,
        "AWS_REGION": S3_REGION,
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


def _module(site: Site, module: str, *arguments: str) -> tuple[str, ...]:
    return (sys.executable, "-m", module, "--state", str(site.state.root), *arguments)


def _ports(site: Site, *names: str) -> tuple[int, ...]:
    return tuple(site.block[name] for name in names)
