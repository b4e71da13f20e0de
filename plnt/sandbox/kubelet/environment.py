"""A container's environment, as a kubelet composes it."""

import base64
from collections.abc import Mapping
from typing import Any

from plnt.clients.kube import CONFIG_MAPS, Kube, Object, Resource
from plnt.sandbox.kubelet.container_command import expand

SECRETS = Resource("v1", "secrets")


class ConfigMissing(Exception):
    """Something that the container's configuration names is not there: CreateContainerConfigError."""


async def compose_environment(kube: Kube, pod: Object, container: Object, facts: Mapping[str, str]) -> dict[str, str]:
    """Compose the variables; ``facts`` are the downward API's fields outside the metadata, such as ``status.podIP``.

    Raises:
        ConfigMissing: a ConfigMap, Secret or key does not exist.
    """
    namespace = pod["metadata"]["namespace"]
    variables: dict[str, str] = {}
    for source in container.get("envFrom") or []:
        prefix = source.get("prefix", "")
        data = await _read_source(kube, namespace, source)
        variables |= {prefix + key: value for key, value in data.items()}
    for item in container.get("env") or []:
        value = await _read_value(kube, pod, container, item, facts)
        if value is not None:
            variables[item["name"]] = expand(value, variables)
    return variables


async def _read_source(kube: Kube, namespace: str, source: Object) -> dict[str, str]:
    if "configMapRef" in source:
        return await read_config_map(kube, namespace, source["configMapRef"])
    return await read_secret(kube, namespace, source["secretRef"])


async def _read_value(kube: Kube, pod: Object, container: Object, item: Object, facts: Mapping[str, str]) -> str | None:
    match item.get("valueFrom"):
        case None:
            return str(item.get("value") or "")
        case {"fieldRef": {"fieldPath": str(path)}}:
            return read_field(pod, path, facts)
        case {"resourceFieldRef": {"resource": str(resource)}}:
            return _read_resource(container, resource)
        case {"configMapKeyRef": dict(key)}:
            data = await read_config_map(kube, pod["metadata"]["namespace"], key)
            return _pick(data, key, "configmap")
        case {"secretKeyRef": dict(key)}:
            data = await read_secret(kube, pod["metadata"]["namespace"], key)
            return _pick(data, key, "secret")
        case other:
            raise ConfigMissing(f"variable {item['name']}: {next(iter(other), '')} is not simulated")


def read_field(pod: Object, path: str, facts: Mapping[str, str]) -> str:
    """Read a field of the downward API; an unknown one is empty."""
    if path in facts:
        return facts[path]
    section, _, rest = path.removeprefix("metadata.").partition("[")
    value: Any = pod["metadata"].get(section, "")
    if rest and isinstance(value, dict):
        value = value.get(rest.rstrip("]").strip("'\""), "")
    return str(value)


def _read_resource(container: Object, resource: str) -> str:
    kind, _, name = resource.partition(".")
    return str(((container.get("resources") or {}).get(kind) or {}).get(name, "0"))


def _pick(data: dict[str, str], reference: Object, kind: str) -> str | None:
    value = data.get(reference["key"])
    if value is None and not reference.get("optional"):
        raise ConfigMissing(f"couldn't find key {reference['key']} in {kind} {reference['name']}")
    return value


async def read_config_map(kube: Kube, namespace: str, reference: Object) -> dict[str, str]:
    """Read the data of a ConfigMap; an optional one may be missing.

    Raises:
        ConfigMissing: it does not exist.
    """
    found = await _find(kube, CONFIG_MAPS, namespace, reference, "configmap")
    return dict(found.get("data") or {})


async def read_secret(kube: Kube, namespace: str, reference: Object) -> dict[str, str]:
    """Read the data of a Secret as text; an optional one may be missing.

    Raises:
        ConfigMissing: it does not exist.
    """
    found = await _find(kube, SECRETS, namespace, reference, "secret")
    return {key: base64.b64decode(value).decode() for key, value in (found.get("data") or {}).items()}


async def _find(kube: Kube, resource: Resource, namespace: str, reference: Object, kind: str) -> Object:
    name = reference.get("name") or reference.get("secretName") or ""
    found = await kube.find(resource, namespace, name)
    if found is None and not reference.get("optional"):
        raise ConfigMissing(f'{kind} "{name}" not found')
    return found or {}
