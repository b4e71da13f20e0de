"""The spec of a WorkflowRun as frozen models; mirrors ``crds/workflowrun.yaml``."""

from enum import StrEnum

from pydantic import Field

from plnt.model.message import Manifest


class Runtime(StrEnum):
    """Inference servers that plnt deploys."""

    VLLM = "vllm"
    TGI = "tgi"
    TRT_LLM = "trt-llm"
    SGLANG = "sglang"


class Quantization(StrEnum):
    """Number formats of the weights."""

    FP16 = "fp16"
    FP8 = "fp8"
    AWQ_4BIT = "awq-4bit"
    GPTQ_4BIT = "gptq-4bit"


class Model(Manifest):
    """Which model, and where its weights lie."""

    name: str
    storage_uri: str
    quantization: Quantization = Quantization.FP16


class Resources(Manifest):
    """What each pod asks for: GPUs of one class, and memory in GiB."""

    gpu: int = Field(ge=1)
    gpu_class: str
    memory_gib: int = Field(ge=1, alias="memoryGiB")


class Replicas(Manifest):
    """Bounds of the number of pods."""

    min: int = Field(default=1, ge=0)
    max: int = Field(default=3, ge=1)


class Autoscaling(Manifest):
    """Target of the autoscaler in generated tokens per second and GPU; none means a fixed size."""

    target_tokens_per_second: int | None = Field(default=None, ge=1)


class SmokeTest(Manifest):
    """Prompts to send and p50 budgets in milliseconds; none means not judged."""

    prompts: int = Field(default=10, ge=1)
    ttft_budget_ms: int | None = Field(default=None, ge=1)
    tpot_budget_ms: int | None = Field(default=None, ge=1)


class Canary(Manifest):
    """Share of requests in percent that the canary gets while it bakes, and its smoke test."""

    traffic_percent: int = Field(default=5, ge=1, le=100)
    smoke_test: SmokeTest = SmokeTest()


class Spec(Manifest):
    """What the user wants to serve."""

    runtime: Runtime
    model: Model
    resources: Resources
    replicas: Replicas = Replicas()
    autoscaling: Autoscaling = Autoscaling()
    canary: Canary = Canary()
