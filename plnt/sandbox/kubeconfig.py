"""Kubeconfig files of the sandbox's users."""

import json
from pathlib import Path

from plnt.sandbox.pki import Authority

CLUSTER = "plnt-sandbox"


def write_kubeconfig(path: Path, server: str, authority: Authority, user: str, group: str | None = None) -> None:
    """Issue a client certificate for ``user`` and write a kubeconfig that names it."""
    certificate, key = authority.issue(user, user, group)
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [
            {"name": CLUSTER, "cluster": {"server": server, "certificate-authority": str(authority.certificate)}}
        ],
        "users": [{"name": user, "user": {"client-certificate": str(certificate), "client-key": str(key)}}],
        "contexts": [{"name": CLUSTER, "context": {"cluster": CLUSTER, "user": user}}],
        "current-context": CLUSTER,
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch(mode=0o600)
    path.write_text(json.dumps(config, indent=2) + "\n")
