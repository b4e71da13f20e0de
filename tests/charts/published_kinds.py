"""Kinds of other projects as these publish them: from Go modules that are pinned, downloaded once and checked by Go."""

import json
import os
import subprocess
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import jsonschema
import yaml

from plnt.sandbox import build, toolchain

Object = dict[str, Any]


class Kind(NamedTuple):
    """Where a CustomResourceDefinition lies: the folder that pins the module, the module, the file in it."""

    pin: Path
    module: str
    file: str


_OPERATOR = (build.module_dir() / "operator", "github.com/prometheus-operator/prometheus-operator")
_IN_OPERATOR = "example/prometheus-operator-crd/monitoring.coreos.com_"
POD_MONITOR = Kind(*_OPERATOR, f"{_IN_OPERATOR}podmonitors.yaml")
PROMETHEUS_RULE = Kind(*_OPERATOR, f"{_IN_OPERATOR}prometheusrules.yaml")
SCALED_OBJECT = Kind(
    Path(__file__).parent / "keda", "github.com/kedacore/keda/v2", "config/crd/bases/keda.sh_scaledobjects.yaml"
)


class NotDownloaded(Exception):
    """Go could not download the module; the text is Go's own."""


@cache
def read_kind(kind: Kind) -> Object:
    """Give the CustomResourceDefinition.

    Raises:
        NotDownloaded: the module is not in Go's cache, and no registry could be asked for it.
    """
    go = toolchain.provide_go(build.module_dir(), build.cache_dir(os.environ), os.environ, print)
    done = subprocess.run(
        [go, "mod", "download", "-json", kind.module],
        cwd=kind.pin, env=toolchain.environment(os.environ), capture_output=True, text=True, check=False,
    )  # fmt: skip
    if done.returncode:
        raise NotDownloaded(f"{kind.module}: {done.stdout}{done.stderr}")
    found: Object = yaml.safe_load((Path(json.loads(done.stdout)["Dir"]) / kind.file).read_text())
    return found


def validate_against(kind: Kind, manifest: Object) -> None:
    """Check an object as an API server with this kind would, fields that it does not know included.

    Raises:
        jsonschema.ValidationError: the server would refuse it.
    """
    definition = read_kind(kind)
    group, _, name = manifest["apiVersion"].partition("/")
    served = {version["name"]: version["schema"]["openAPIV3Schema"] for version in definition["spec"]["versions"]}
    assert (group, manifest["kind"]) == (definition["spec"]["group"], definition["spec"]["names"]["kind"])
    schema = _close(served[name])
    schema["properties"]["metadata"] = {"type": "object"}
    jsonschema.validate(manifest, schema)


def _close(schema: Any) -> Any:
    """Refuse what the schema does not name, wherever it names something."""
    if isinstance(schema, list):
        return [_close(part) for part in schema]
    if not isinstance(schema, Mapping):
        return schema
    closed = {key: _close(part) for key, part in schema.items()}
    if isinstance(closed.get("pattern"), str):
        # Go lets flags stand anywhere, Python only at the beginning.
        closed["pattern"] = closed["pattern"].replace("^(?i)", "(?i)^")
    if isinstance(schema.get("properties"), Mapping) and "type" in schema:
        closed.setdefault("additionalProperties", False)
    if schema.get("x-kubernetes-preserve-unknown-fields"):
        closed["additionalProperties"] = True
    return closed
