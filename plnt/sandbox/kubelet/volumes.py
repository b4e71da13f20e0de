"""A pod's volumes as folders of the state folder."""

import shutil
from collections.abc import Mapping
from pathlib import Path, PurePosixPath

from plnt.clients.kube import Kube, Object
from plnt.sandbox.kubelet.environment import ConfigMissing, read_config_map, read_secret

WEIGHTS_SERVER = "weights.plnt.test"
"""The nfs server whose export is the sandbox's weights cache."""


class MountFailed(Exception):
    """A volume cannot be set up: the pod waits in ContainerCreating."""


async def mount_volumes(kube: Kube, pod: Object, cache: Path, folder: Path) -> dict[str, Path]:
    """Set up the pod's volumes below ``folder``; gives the folder of each by name.

    Raises:
        MountFailed: a volume's source is missing or not simulated.
    """
    mounted: dict[str, Path] = {}
    for volume in pod["spec"].get("volumes") or []:
        own = folder / volume["name"]
        mounted[volume["name"]] = await _mount(kube, pod["metadata"]["namespace"], volume, cache, own)
    return mounted


def remove_volumes(folder: Path) -> None:
    """Remove what ``mount_volumes`` made below ``folder``."""
    shutil.rmtree(folder, ignore_errors=True)


async def _mount(kube: Kube, namespace: str, volume: Object, cache: Path, own: Path) -> Path:
    match volume:
        case {"nfs": {"server": server, "path": str(path)}} if server == WEIGHTS_SERVER:
            return _inside(cache, path.lstrip("/"))
        case {"configMap": dict(source)} | {"secret": dict(source)}:
            _write(own, await _read(kube, namespace, volume), source)
        case {"emptyDir": _} | {"projected": _} | {"downwardAPI": _}:
            _write(own, {}, {})
        case _:
            kind = next((key for key in volume if key != "name"), "none")
            raise MountFailed(f'MountVolume.SetUp failed for volume "{volume["name"]}": {kind} is not simulated')
    return own


async def _read(kube: Kube, namespace: str, volume: Object) -> Mapping[str, str]:
    try:
        if "configMap" in volume:
            return await read_config_map(kube, namespace, volume["configMap"])
        return await read_secret(kube, namespace, volume["secret"])
    except ConfigMissing as error:
        raise MountFailed(f'MountVolume.SetUp failed for volume "{volume["name"]}": {error}') from None


def _write(folder: Path, data: Mapping[str, str], source: Object) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    items = {item["key"]: item["path"] for item in source.get("items") or []}
    for key, text in data.items():
        if not items or key in items:
            path = folder / items.get(key, key)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)


def resolve_mounts(container: Object, volumes: Mapping[str, Path], read_only: set[str]) -> dict[str, str]:
    """Map the container's mount paths to folders; ``read_only`` names the volumes on which no folder can be made.

    Raises:
        ConfigMissing: a sub-path is not there and cannot be made.
    """
    mounts = {}
    for position, mount in enumerate(container.get("volumeMounts") or []):
        path = volumes[mount["name"]]
        if mount.get("subPath"):
            path = _inside(path, mount["subPath"])
            if not path.exists() and (mount.get("readOnly") or mount["name"] in read_only):
                raise ConfigMissing(
                    f'failed to create subPath directory for volumeMount "{mount["name"]}" (index {position}) of'
                    f' container "{container["name"]}": {mount["subPath"]}: read-only file system'
                )
            if not path.exists():
                path.mkdir(parents=True)
        mounts[mount["mountPath"].rstrip("/")] = str(path)
    return mounts


def _inside(folder: Path, relative: str) -> Path:
    if ".." in PurePosixPath(relative).parts:
        raise ConfigMissing(f"{relative} leaves its volume")
    return folder / relative
