"""What a container's start needs: command, environment, mounts."""

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass

from plnt.clients.kube import Object
from plnt.sandbox.kubelet.container_command import count_gpus, read_words, rewrite_paths
from plnt.sandbox.kubelet.environment import compose_environment
from plnt.sandbox.kubelet.images import Image, Program, choose_command
from plnt.sandbox.kubelet.pod_site import PodSite
from plnt.sandbox.kubelet.status import NODE_ADDRESS
from plnt.sandbox.kubelet.volumes import resolve_mounts


@dataclass(frozen=True, slots=True)
class Start:
    """One local process; no command when the image holds no such program."""

    program: str
    command: list[str] | None
    env: Mapping[str, str]


async def prepare_start(site: PodSite, spec: Object, image: Image) -> Start:
    """Gather what the start needs.

    Raises:
        ConfigMissing: something that the container's configuration names is not there.
    """
    pod = site.pod
    address = site.listen if image.program is Program.PLNT else site.address
    facts = {
        "status.podIP": address,
        "status.podIPs": address,
        "status.hostIP": NODE_ADDRESS,
        "spec.nodeName": pod["spec"]["nodeName"],
        "spec.serviceAccountName": pod["spec"].get("serviceAccountName", ""),
    }
    given = {**image.env, **await compose_environment(site.shared.kube, pod, spec, facts)}
    read_only = {v["name"] for v in pod["spec"].get("volumes") or [] if {"nfs", "persistentVolumeClaim"} & v.keys()}
    mounts = resolve_mounts(spec, site.volumes, read_only)
    words = read_words(spec, image.entrypoint, given)
    command = choose_command(image, [rewrite_paths(word, mounts) for word in words])
    env = {name: rewrite_paths(value, mounts) for name, value in given.items()}
    return Start(words[0] if words else "", command, {**_base(site, image), **env, **_told(site, spec, mounts)})


def _base(site: PodSite, image: Image) -> dict[str, str]:
    own = {"PATH": os.environ.get("PATH", os.defpath)} if image.program is Program.PLNT else {}
    return {**site.shared.process_env, **own, "HOSTNAME": site.name, "POD_NAME": site.name}


def _told(site: PodSite, spec: Object, mounts: Mapping[str, str]) -> dict[str, str]:
    """Give what the stub engine is told beside the container's own environment."""
    told = {
        "PLNT_STUB_LISTEN": site.listen,
        "PLNT_STUB_MOUNTS": json.dumps({folder: path for path, folder in mounts.items()}),
        "PLNT_STUB_LOADS": str(site.shared.loads),
    }
    gpus = count_gpus(spec)
    return {**told, "PLNT_STUB_GPUS": str(gpus)} if gpus else told
