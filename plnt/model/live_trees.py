"""Which weights trees an object of the cluster uses."""

from collections.abc import Iterable
from typing import Any

from pydantic import ValidationError

from plnt.model import names
from plnt.model.messages import ServingRecord

TREES = "trees/"
"""Folder of the cache under which a tree's sub-path lies."""


def read_trees(objects: Iterable[dict[str, Any]]) -> set[str]:
    """Give the digests of the trees that pods, pod templates and serving records name."""
    found: set[str] = set()
    for one in objects:
        spec = one.get("spec") or {}
        pod = (spec.get("template") or {}).get("spec") or spec
        for container in [*(pod.get("initContainers") or []), *(pod.get("containers") or [])]:
            for mount in container.get("volumeMounts") or []:
                path = str(mount.get("subPath", ""))
                if path.startswith(TREES):
                    found.add(path.removeprefix(TREES).partition("/")[0])
        found |= _read_record(one)
    return found


def _read_record(one: dict[str, Any]) -> set[str]:
    text = (one["metadata"].get("annotations") or {}).get(names.RECORD_ANNOTATION)
    if not text:
        return set()
    try:
        tree = ServingRecord.model_validate_json(text).tree
    except ValidationError:
        return set()
    return {tree} if tree else set()
