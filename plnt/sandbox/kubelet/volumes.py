"""A pod's volumes as folders of the state folder."""

import shutil
from collections.abc import Mapping
from pathlib import Path, PurePosixPath

from plnt.clients.kube import CLAIMS, Kube, Object, Resource
from plnt.errors import NotFound
from plnt.sandbox.kubelet.environment import ConfigMissing, read_config_map, read_secret
from plnt.sandbox.kubelet.projected import fill_projected, write_files

WEIGHTS_SERVER = "weights.plnt.test"
"""The nfs server whose export is the sandbox's weights cache."""
VOLUMES = Resource("v1", "persistentvolumes")


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
        mounted[volume["name"]] = await _mount(kube, pod, volume, cache, own)
    return mounted


def remove_volumes(folder: Path) -> None:
    """Remove what ``mount_volumes`` made below ``folder``."""
    shutil.rmtree(folder, ignore_errors=True)


async def _mount(kube: Kube, pod: Object, volume: Object, cache: Path, own: Path) -> Path:
    namespace = pod["metadata"]["namespace"]
    match volume:
        case {"nfs": {"server": server, "path": str(path)}} if server == WEIGHTS_SERVER:
            return _inside(cache, path.lstrip("/"))
        case {"persistentVolumeClaim": {"claimName": str(claim)}}:
            return await _mount(kube, pod, {**await _read_claim(kube, namespace, claim), "name": claim}, cache, own)
        case {"configMap": dict(source)} | {"secret": dict(source)}:
            write_files(own, await _read(kube, namespace, volume), source)
        case {"projected": _}:
            await _fill(kube, pod, volume, own)
        case {"emptyDir": _} | {"downwardAPI": _}:
            write_files(own, {}, {})
        case _:
            kind = next((key for key in volume if key != "name"), "none")
            raise MountFailed(f'MountVolume.SetUp failed for volume "{volume["name"]}": {kind} is not simulated')
    return own


async def _read_claim(kube: Kube, namespace: str, claim: str) -> Object:
    """Give the source of the volume that a claim is bound to."""
    try:
        bound = (await kube.get(CLAIMS, namespace, claim))["spec"].get("volumeName")
        if not bound:
            raise MountFailed(f'persistentvolumeclaim "{claim}" is not bound')
        spec: Object = (await kube.get(VOLUMES, None, bound))["spec"]
    except NotFound as error:
        raise MountFailed(f'persistentvolumeclaim "{claim}" not found') from error
    return {key: spec[key] for key in ("nfs", "csi", "hostPath") if key in spec}


async def _fill(kube: Kube, pod: Object, volume: Object, own: Path) -> None:
    try:
        await fill_projected(kube, pod, volume, own)
    except ConfigMissing as error:
        raise MountFailed(f'MountVolume.SetUp failed for volume "{volume["name"]}": {error}') from None


async def _read(kube: Kube, namespace: str, volume: Object) -> Mapping[str, str]:
    try:
        if "configMap" in volume:
            return await read_config_map(kube, namespace, volume["configMap"])
        return await read_secret(kube, namespace, volume["secret"])
    except ConfigMissing as error:
        raise MountFailed(f'MountVolume.SetUp failed for volume "{volume["name"]}": {error}') from None


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
