"""The Kubernetes control plane's components: the flags of a cluster whose nodes are played."""

from typing import Any

from plnt.sandbox.component import Component, Site, clean_environment
from plnt.sandbox.product import PRODUCT


def list_control_plane(site: Site) -> list[Component]:
    """Give etcd, the API server, the controllers and the scheduler."""
    return [_etcd(site), _apiserver(site), _controllers(site), _scheduler(site)]


def render_audit_policy() -> dict[str, Any]:
    """Render what is noted: who asked for what and what came of it, of the product's users and all pods' accounts."""
    return {
        "apiVersion": "audit.k8s.io/v1",
        "kind": "Policy",
        "omitStages": ["RequestReceived"],
        "rules": [
            {"level": "Metadata", "users": [f"plnt-{name}" for name in PRODUCT]},
            {"level": "Metadata", "userGroups": ["system:serviceaccounts"]},
            {"level": "None"},
        ],
    }


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
    return Component("etcd", command, clean_environment(), f"{client}/health", site.ports("etcd", "etcd-peer"))


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
        f"--audit-policy-file={site.audit_policy}",
        f"--audit-log-path={site.state.log_of('audit')}",
    )
    ready = f"{site.api}/readyz"
    return Component("kube-apiserver", command, clean_environment(), ready, (port,), waits_for=("etcd",))


def _controllers(site: Site) -> Component:
    return _client(
        site,
        "kube-controller-manager",
        f"--service-account-private-key-file={site.state.pki / 'service-accounts.key'}",
        f"--root-ca-file={site.state.pki / 'ca.crt'}",
        "--use-service-account-credentials=false",
        "--kube-api-qps=500",
        "--kube-api-burst=1000",
        "--horizontal-pod-autoscaler-sync-period=5s",
        "--controllers=*,-node-ipam-controller",
    )


def _scheduler(site: Site) -> Component:
    return _client(site, "kube-scheduler")


def _client(site: Site, name: str, *flags: str) -> Component:
    """Give a component that works on the API server alone, and has no second copy to elect a leader with."""
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
        *flags,
    )
    ready = f"tcp://127.0.0.1:{site.block[name]}"
    return Component(name, command, clean_environment(), ready, site.ports(name), waits_for=("kube-apiserver",))
