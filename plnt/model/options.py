"""Options that stand in ``plnt.work/*`` annotations and passed-through labels of a WorkflowRun."""

import hashlib
import json
import re
from collections.abc import Callable, Mapping
from functools import partial

from pydantic import Field

from plnt.model.message import Message
from plnt.model.names import GROUP

PREFIX = f"{GROUP}/"
PASSED_LABEL_PREFIX = "kueue.x-k8s.io/"
"""Labels with this prefix go to the Deployment and its pod template."""

BAKE_SECONDS = f"{PREFIX}bake-seconds"
QUEUE_DEADLINE = f"{PREFIX}queue-deadline"
SKIP_TEARDOWN = f"{PREFIX}skip-teardown"
APPROVE = f"{PREFIX}approve"
PAUSE = f"{PREFIX}pause"
VALUES_FROM = f"{PREFIX}values-from"
CREDENTIALS = f"{PREFIX}credentials"
INCLUDE = f"{PREFIX}include"
EXCLUDE = f"{PREFIX}exclude"

PLANNED = (
    "traffic",
    "route",
    "priority",
    "reverify",
)
"""Keys that are documented but not built yet: refused by name, with that said."""

MAX_NAME_CHARS = 253
"""Longest name of a Kubernetes object."""
_OBJECT_NAME = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")

MAX_GLOBS = 50
MAX_SECONDS = 30 * 24 * 3600
"""Longest bake or queue deadline that is accepted, in seconds: 30 days."""


class Options(Message):
    """The parsed options; none means the policy's default."""

    bake_seconds: int | None = None
    queue_deadline_seconds: int | None = None
    skip_teardown: bool = False
    approve: str | None = None
    """Generation that may be promoted, as it was typed; any other text holds, none asks for no approval."""
    pause: bool = False
    """Whether the next phase has to wait; any value of the annotation does it."""
    values_from: str = ""
    """ConfigMap with extra chart values, in the WorkflowRun's namespace; empty = none."""
    credentials: str = ""
    """Secret with access to the weights' source, in the WorkflowRun's namespace; empty = the pool's own identity."""
    include: list[str] = Field(default_factory=list)
    """Globs of the files to pull, instead of the weights that a runtime would load."""
    exclude: list[str] = Field(default_factory=list)
    """Globs of files to leave out."""
    labels: dict[str, str] = Field(default_factory=dict)
    """Labels passed through to the pods."""


def own_annotations(annotations: Mapping[str, str]) -> dict[str, str]:
    """Give the annotations that are options."""
    return {key: value for key, value in annotations.items() if key.startswith(PREFIX)}


def passed_labels(labels: Mapping[str, str]) -> dict[str, str]:
    """Give the labels that go to the pods."""
    return {key: value for key, value in labels.items() if key.startswith(PASSED_LABEL_PREFIX)}


def options_digest(annotations: Mapping[str, str], labels: Mapping[str, str]) -> str:
    """Give 12 hex digits over everything outside the spec that steers a rollout."""
    steering = [own_annotations(annotations), passed_labels(labels)]
    return hashlib.sha256(json.dumps(steering, sort_keys=True).encode()).hexdigest()[:12]


def parse_options(annotations: Mapping[str, str], labels: Mapping[str, str]) -> tuple[Options, list[str]]:
    """Give the options and one fault per annotation that cannot be honoured, each naming key and remedy."""
    faults: list[str] = []
    found: dict[str, object] = {"labels": passed_labels(labels)}
    for key, value in sorted(own_annotations(annotations).items()):
        if key in _READERS:
            found[_field(key)] = _READERS[key](key, value, faults)
        else:
            faults.append(_unknown(key))
    return Options.model_validate(found), faults


def _seconds(key: str, value: str, faults: list[str], *, least: int) -> int | None:
    if value.isascii() and value.isdecimal() and least <= int(value) <= MAX_SECONDS:
        return int(value)
    faults.append(f"annotation {key}: {value!r} is not a whole number of seconds from {least} to {MAX_SECONDS}")
    return None


def _truth(key: str, value: str, faults: list[str]) -> bool:
    if value in {"true", "false"}:
        return value == "true"
    faults.append(f"annotation {key}: {value!r} is neither 'true' nor 'false'")
    return False


def _object_name(key: str, value: str, faults: list[str], *, kind: str) -> str:
    if len(value) <= MAX_NAME_CHARS and _OBJECT_NAME.fullmatch(value):
        return value
    faults.append(f"annotation {key}: {value!r} is no name of a {kind}")
    return ""


def _globs(key: str, value: str, faults: list[str]) -> list[str]:
    globs = [part.strip() for part in value.split(",") if part.strip()]
    if globs and len(globs) <= MAX_GLOBS and all(glob.isprintable() and len(glob) <= MAX_NAME_CHARS for glob in globs):
        return globs
    faults.append(f"annotation {key}: write 1 to {MAX_GLOBS} file globs, separated by commas, such as *.safetensors")
    return []


_READERS: dict[str, Callable[[str, str, list[str]], object]] = {
    APPROVE: lambda _key, value, _faults: value.strip(),
    BAKE_SECONDS: partial(_seconds, least=0),
    CREDENTIALS: partial(_object_name, kind="Secret"),
    EXCLUDE: _globs,
    INCLUDE: _globs,
    PAUSE: lambda _key, _value, _faults: True,
    QUEUE_DEADLINE: partial(_seconds, least=1),
    SKIP_TEARDOWN: _truth,
    VALUES_FROM: partial(_object_name, kind="ConfigMap"),
}
"""How each key's value is read; the key's own words are the field of `Options`."""


def _field(key: str) -> str:
    name = key.removeprefix(PREFIX).replace("-", "_")
    return f"{name}_seconds" if key == QUEUE_DEADLINE else name


def _unknown(key: str) -> str:
    known = ", ".join(_READERS)
    state = "is not built yet" if key.removeprefix(PREFIX) in PLANNED else "is unknown"
    return f"annotation {key} {state}: remove it (this version knows {known})"
