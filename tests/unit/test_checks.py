from typing import Any

import pytest

from plnt.model.checks import check_desired
from plnt.model.desired import Desired, Policy
from plnt.model.options import Options
from plnt.model.workflow_run import Spec


def desired(faults: list[str] | None = None, **changes: Any) -> Desired:
    spec: dict[str, Any] = {
        "runtime": "vllm",
        "model": {"name": "m", "storageUri": "s3://bucket/m"},
        "resources": {"gpu": 1, "gpuClass": "nvidia.com/h100", "memoryGiB": 16},
        "replicas": {"min": 0},
    }
    for key, value in changes.items():
        spec[key] = {**spec.get(key, {}), **value} if isinstance(value, dict) else value
    return Desired(
        uid="u",
        generation=1,
        identity="i",
        options_digest="o",
        deleting=False,
        spec=Spec.model_validate(spec),
        options=Options(),
        policy=Policy(),
        faults=faults or [],
    )


@pytest.mark.parametrize("quantization", ["fp16", "fp8", "awq-4bit", "gptq-4bit"])
@pytest.mark.parametrize("runtime", ["vllm", "sglang", "tgi", "trt-llm"])
def test_a_spec_that_can_be_honoured_has_no_fault(runtime: str, quantization: str) -> None:
    faults = check_desired(desired(runtime=runtime, model={"quantization": quantization}))
    assert bool(faults) is ((runtime, quantization) == ("trt-llm", "gptq-4bit"))


@pytest.mark.parametrize(
    ("changes", "field", "words"),
    [
        (
            {"runtime": "trt-llm", "model": {"quantization": "gptq-4bit"}},
            "spec.model.quantization",
            "use one of fp16, fp8, awq-4bit, or set spec.runtime to vllm or tgi or sglang",
        ),
        ({"model": {"storageUri": "s3://bucket/../x"}}, "spec.model.storageUri", "segment"),
        ({"model": {"name": "--trust-remote-code"}}, "spec.model.name", "use another name"),
        ({"model": {"name": "a b"}}, "spec.model.name", "use another name"),
        ({"canary": {"smokeTest": {"prompts": 1001}}}, "spec.canary.smokeTest.prompts", "use 1000 or less"),
        ({"replicas": {"max": 2**31}}, "spec.replicas.max", "use 2147483647 or less"),
        ({"resources": {"memoryGiB": 2**33}}, "spec.resources.memoryGiB", "use 8589934591 or less"),
        ({"replicas": {"min": 4}}, "spec.replicas.min", "replicas.max 3"),
    ],
)
def test_a_spec_that_cannot_be_honoured_is_refused_by_field_and_limit(
    changes: dict[str, Any], field: str, words: str
) -> None:
    faults = check_desired(desired(**changes))
    assert len(faults) == 1
    assert faults[0].startswith(field)
    assert words in faults[0]


def test_every_fault_is_told_at_once() -> None:
    wanted = desired(
        ["annotation plnt.work/x is unknown"],
        runtime="trt-llm",
        model={"quantization": "gptq-4bit"},
        replicas={"max": 2**40},
    )
    faults = check_desired(wanted)
    assert [fault.split(":")[0] for fault in faults] == [
        "annotation plnt.work/x is unknown",
        "spec.model.quantization",
        "spec.replicas.max",
    ]
