"""What a kubelet writes into a pod's volumes: ConfigMaps, Secrets, fields of the pod, tokens of its account."""

from collections.abc import Mapping
from pathlib import Path

from plnt.clients.kube import Kube, Object, Resource
from plnt.sandbox.kubelet.environment import read_config_map, read_field, read_secret

RENEW_SECONDS = 30.0
"""Time between two tokens; a kubelet waits for 80 % of a token's life, but no test would live to see that."""
_LIFE_SECONDS = 3600


def write_files(folder: Path, data: Mapping[str, str], source: Object) -> None:
    """Write a ConfigMap's or Secret's keys as files, those alone that ``source`` lists if it does."""
    folder.mkdir(parents=True, exist_ok=True)
    items = {item["key"]: item["path"] for item in source.get("items") or []}
    for key, text in data.items():
        if not items or key in items:
            _replace(folder / items.get(key, key), text)


def has_token(volume: Object) -> bool:
    """Tell whether a volume holds a token, which is renewed."""
    return any("serviceAccountToken" in source for source in (volume.get("projected") or {}).get("sources") or [])


async def fill_projected(kube: Kube, pod: Object, volume: Object, folder: Path) -> None:
    """Write all sources of a projected volume; each file is replaced by rename, as readers expect.

    Raises:
        ConfigMissing: a ConfigMap or Secret does not exist.
    """
    write_files(folder, {}, {})
    namespace = pod["metadata"]["namespace"]
    for source in volume["projected"].get("sources") or []:
        match source:
            case {"serviceAccountToken": dict(wanted)}:
                _replace(folder / wanted["path"], await _request_token(kube, pod, wanted))
            case {"configMap": dict(wanted)}:
                write_files(folder, await read_config_map(kube, namespace, wanted), wanted)
            case {"secret": dict(wanted)}:
                write_files(folder, await read_secret(kube, namespace, wanted), wanted)
            case {"downwardAPI": {"items": list(items)}}:
                for item in items:
                    _replace(folder / item["path"], read_field(pod, item["fieldRef"]["fieldPath"], {}))


async def _request_token(kube: Kube, pod: Object, wanted: Object) -> str:
    """Ask for a token that ends with the pod."""
    meta = pod["metadata"]
    account = pod["spec"].get("serviceAccountName") or "default"
    spec: Object = {
        "expirationSeconds": wanted.get("expirationSeconds", _LIFE_SECONDS),
        "boundObjectRef": {"apiVersion": "v1", "kind": "Pod", "name": meta["name"], "uid": meta["uid"]},
        "audiences": [wanted["audience"]] if wanted.get("audience") else [],
    }
    body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec}
    answer = await kube.create(Resource("v1", f"serviceaccounts/{account}/token"), meta["namespace"], body)
    return str(answer["status"]["token"])


def _replace(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.draft")
    draft.touch(mode=0o600)
    draft.write_text(text)
    draft.replace(path)
