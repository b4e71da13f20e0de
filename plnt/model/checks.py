"""What a WorkflowRun asks for that its schema allows and this version cannot honour.

Each check gives one line per fault, with the field, its limit and what to do; none changes anything. A size of
0 is no fault: pods are ``max(replicas.min, 1)`` as long as no autoscaler can bring an idle model back from 0.
"""

import re
from collections.abc import Iterator

from plnt.errors import SpecInvalid
from plnt.model.checkpoint import list_formats
from plnt.model.desired import Desired
from plnt.model.storage_uri import parse_storage_uri
from plnt.model.workflow_run import Runtime, Spec

MAX_PROMPTS = 1000
"""Most prompts of a smoke test: at one second each, a quarter of an hour before anybody is served."""
MAX_REPLICAS = 2**31 - 1
"""Most pods of a Deployment: ``spec.replicas`` is an int32."""
MAX_MEMORY_GIB = 2**33 - 1
"""Most memory that a Kubernetes quantity holds: its bytes are an int64."""


def check_desired(desired: Desired) -> list[str]:
    """Give every fault of a WorkflowRun; an empty list means that it can be rolled out."""
    checks = (_check_format, _check_model_name, _check_storage, _check_integers)
    return [*desired.faults, *(fault for check in checks for fault in check(desired.spec))]


def _check_format(spec: Spec) -> Iterator[str]:
    formats = list_formats(spec.runtime)
    if spec.model.quantization not in formats:
        others = [runtime for runtime in Runtime if spec.model.quantization in list_formats(runtime)]
        yield (
            f"spec.model.quantization: {spec.runtime} cannot load {spec.model.quantization}:"
            f" use one of {', '.join(formats)}, or set spec.runtime to {' or '.join(others)}"
        )


def _check_model_name(spec: Spec) -> Iterator[str]:
    if spec.model.name.startswith("-") or re.search(r"[\s\x00-\x1f\x7f]", spec.model.name):
        yield "spec.model.name: a name that starts with '-' or holds a blank is read as an option: use another name"


def _check_storage(spec: Spec) -> Iterator[str]:
    try:
        parse_storage_uri(spec.model.storage_uri)
    except SpecInvalid as error:
        yield str(error)


def _check_integers(spec: Spec) -> Iterator[str]:
    limits = (
        ("spec.canary.smokeTest.prompts", spec.canary.smoke_test.prompts, MAX_PROMPTS),
        ("spec.replicas.min", spec.replicas.min, MAX_REPLICAS),
        ("spec.replicas.max", spec.replicas.max, MAX_REPLICAS),
        ("spec.resources.memoryGiB", spec.resources.memory_gib, MAX_MEMORY_GIB),
    )
    for field, value, limit in limits:
        if value > limit:
            yield f"{field}: {value} is more than plnt can honour: use {limit} or less"
    if spec.replicas.min > spec.replicas.max:
        yield f"spec.replicas.min: {spec.replicas.min} is more than replicas.max {spec.replicas.max}: lower it"
