"""Helm's records of releases, read from its ConfigMaps' labels; no helm process is needed."""

from collections.abc import Sequence
from datetime import UTC, datetime

from plnt.clients.kube import CONFIG_MAPS, Kube, Object
from plnt.model import names
from plnt.model.release_recovery import ReleaseRecord


async def fetch_records(kube: Kube, namespace: str, *, release: str = "", owner: str = "") -> list[ReleaseRecord]:
    """Read the records of one release, or of all releases of one WorkflowRun's base name."""
    labels = "owner=helm"
    labels += f",name={release}" if release else ""
    labels += f",{names.OWNER_LABEL}={owner}" if owner else ""
    maps, _ = await kube.list(CONFIG_MAPS, namespace, labels=labels)
    return [_parse_record(found) for found in maps]


async def fetch_all_records(kube: Kube, places: Sequence[str | None]) -> dict[str, list[ReleaseRecord]]:
    """Read the records of every release of ours in ``places``, by namespace; a place of none = all namespaces."""
    found: dict[str, list[ReleaseRecord]] = {}
    for place in places:
        maps, _ = await kube.list(CONFIG_MAPS, place, labels=f"owner=helm,{names.OWNER_LABEL}")
        for one in maps:
            found.setdefault(str(one["metadata"]["namespace"]), []).append(_parse_record(one))
    return found


def _parse_record(found: Object) -> ReleaseRecord:
    meta = found["metadata"]
    labels = meta["labels"]
    return ReleaseRecord(
        release=labels["name"],
        owner=labels.get(names.OWNER_LABEL, ""),
        version=int(labels["version"]),
        status=labels["status"],
        changed_at=_changed_at(labels, meta["creationTimestamp"]),
    )


def _changed_at(labels: dict[str, str], created: str) -> datetime:
    """Give when helm wrote the record last: it notes seconds since the epoch in one label or the other."""
    seconds = [int(labels[key]) for key in ("createdAt", "modifiedAt") if labels.get(key, "").isdecimal()]
    return datetime.fromtimestamp(max(seconds), UTC) if seconds else datetime.fromisoformat(created)
