"""Where things lie in a sandbox's state folder, and the port block and pod range that the folder keeps."""

import json
import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from plnt.errors import PermanentError

_MARK = "sandbox.json"
_EACH_RUN = ("pki", "kubeconfigs", "logs", "data", "cache", "kubelet", "envoy", "metrics", "mesh", "helm", "bin")


class StateInvalid(PermanentError):
    """The folder given as a sandbox's state is something else."""


@dataclass(frozen=True, slots=True)
class State:
    """Paths inside the state folder ``root``."""

    root: Path

    @property
    def kubeconfig(self) -> Path:
        """The administrator's kubeconfig."""
        return self.root / "kubeconfig"

    @property
    def pki(self) -> Path:
        """Certificates and keys."""
        return self.root / "pki"

    @property
    def data(self) -> Path:
        """What the servers store."""
        return self.root / "data"

    @property
    def cache(self) -> Path:
        """The weights cache, which pods mount as ``nfs`` volume."""
        return self.root / "cache"

    @property
    def processes(self) -> Path:
        """The record of what runs."""
        return self.root / "processes.json"

    def kubeconfig_of(self, component: str) -> Path:
        """Give the kubeconfig of a component's own user."""
        return self.root / "kubeconfigs" / f"{component}.yaml"

    def log_of(self, component: str) -> Path:
        """Give a component's log file."""
        return self.root / "logs" / f"{component}.log"

    def read_settings(self) -> dict[str, Any]:
        """Read what the folder keeps from run to run; empty for a new folder.

        Raises:
            StateInvalid: the folder holds something else than a sandbox.
        """
        mark = self.root / _MARK
        if mark.exists():
            return dict(json.loads(mark.read_text()))
        if self.root.exists() and any(self.root.iterdir()):
            raise StateInvalid(f"{self.root} is no sandbox's state folder and is not empty; name another with --state")
        return {}

    def write_settings(self, settings: Mapping[str, Any]) -> None:
        """Keep ``settings`` in the folder."""
        self.root.mkdir(parents=True, exist_ok=True, mode=0o700)
        write_json(self.root / _MARK, settings)

    def clear(self) -> None:
        """Remove what belongs to one run: a sandbox starts empty, so that its servers agree with each other."""
        for name in _EACH_RUN:
            shutil.rmtree(self.root / name, ignore_errors=True)
        for name in ("kubeconfigs", "logs", "data", "cache", "kubelet", "envoy"):
            (self.root / name).mkdir(parents=True)


def write_json(path: Path, value: object) -> None:
    """Write a JSON file by rename, so that no reader sees half of it."""
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    draft.write_text(json.dumps(value, indent=2) + "\n")
    draft.replace(path)
