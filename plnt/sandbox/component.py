"""What a component of a sandbox is, and the site from which every component's command is derived."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import plnt
from plnt.sandbox.ports import Block
from plnt.sandbox.programs import Programs
from plnt.sandbox.state import State

_FOREIGN = ("KUBE", "TEMPORAL_", "AWS_", "PLNT_", "HELM_", "OTEL_")
_PROXIES = ("http_proxy", "https_proxy", "all_proxy", "no_proxy")


@dataclass(frozen=True, slots=True)
class Component:
    """One process.

    ``ready`` is what ``probe.answers`` asks, empty when there is nothing to ask; ``waits_for`` names what it would
    give up without. The servers' data is thrown away, so they get little time to stop: with open watches an API
    server would take a minute.
    """

    name: str
    command: tuple[str, ...]
    env: Mapping[str, str]
    ready: str
    ports: tuple[int, ...] = ()
    waits_for: tuple[str, ...] = ()
    restarts: bool = False
    stop_seconds: float = 1.5


@dataclass(frozen=True, slots=True)
class Site:
    """Where a sandbox stands, from which every command is derived."""

    state: State
    block: Block
    programs: Programs
    overrides: Mapping[str, str] = field(default_factory=dict)

    @property
    def api(self) -> str:
        """URL of the API server."""
        return f"https://127.0.0.1:{self.block['kube-apiserver']}"

    @property
    def temporal(self) -> str:
        """Address of Temporal's frontend."""
        return f"127.0.0.1:{self.block['temporal']}"

    @property
    def web_ui(self) -> str:
        """URL of Temporal's Web UI."""
        return f"http://127.0.0.1:{self.block['temporal-ui']}"

    @property
    def s3(self) -> str:
        """URL of the S3 server."""
        return f"http://127.0.0.1:{self.block['s3']}"

    @property
    def envoy(self) -> str:
        """URL of the proxy through which Services are reached."""
        return f"http://127.0.0.1:{self.block['envoy']}"

    @property
    def mesh_config(self) -> Path:
        """The configuration file of istiod."""
        return self.state.root / "envoy" / "mesh.json"

    @property
    def envoy_bootstrap(self) -> Path:
        """The configuration file of Envoy."""
        return self.state.root / "envoy" / "bootstrap.json"

    @property
    def audit_policy(self) -> Path:
        """What the API server notes in its audit log."""
        return self.state.data / "audit-policy.json"

    @property
    def path(self) -> str:
        """PATH with the sandbox's programs first."""
        folders = [self.programs.servers, self.programs.kubectl.parent, self.programs.temporal.parent]
        return os.pathsep.join([*dict.fromkeys(map(str, folders)), os.environ.get("PATH", os.defpath)])

    def ports(self, *names: str) -> tuple[int, ...]:
        """Give ports by purpose."""
        return tuple(self.block[name] for name in names)


def clean_environment() -> dict[str, str]:
    """Give this process's environment without what would point a child at another installation."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(_FOREIGN) and k.lower() not in _PROXIES}
    paths = [str(Path(plnt.__file__).parents[1]), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {**kept, "PYTHONPATH": os.pathsep.join(paths), "PYTHONUNBUFFERED": "1"}
