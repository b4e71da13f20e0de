"""A ReplicaSet as the garbage collector leaves one that missed the end of its Deployment."""

from plnt.clients.kube import Object
from plnt.model import names
from plnt.model.traffic import INSTANCE_LABEL


def make_replica_set(namespace: str, release: str, base: str) -> Object:
    """Give a ReplicaSet of the release that no Deployment owns, so that no garbage collector takes it away."""
    return {
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "metadata": {
            "name": f"{release}-left",
            "namespace": namespace,
            "labels": {INSTANCE_LABEL: release, names.OWNER_LABEL: base},
        },
        "spec": {
            "replicas": 0,
            "selector": {"matchLabels": {"test": "left"}},
            "template": {
                "metadata": {"labels": {"test": "left"}},
                "spec": {"containers": [{"name": "engine", "image": "none"}]},
            },
        },
    }
