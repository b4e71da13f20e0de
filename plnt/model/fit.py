"""Whether a model fits into the memory of the GPUs that each pod asks for.

A refusal rests on lower bounds alone, so that nothing that would load is refused; what is unknown never blocks.
"""

from typing import NamedTuple

from plnt.model.messages import ExtraValues, GpuClass, PlanRef
from plnt.model.workflow_run import Quantization, Resources, Spec

LEAST_REQUEST_TOKENS = 2048
"""Shortest request, prompt and answer together, that a served model must have room for."""
USABLE_PERCENT = 90
"""Share of the memory that engines take for weights and keys and values; vLLM's default is 92 %."""

_MIB = 2**20
_GIB = 2**30


class Fit(NamedTuple):
    """What the numbers say; both empty where they say nothing, or that there is room."""

    fault: str
    """Why the model cannot be loaded."""
    warnings: list[str]


def judge_fit(spec: Spec, plan: PlanRef, gpu_class: GpuClass, values: ExtraValues | None = None) -> Fit:
    """Compare weights and one request's keys and values with the GPUs."""
    warnings = _check_heads(spec.resources, plan)
    room = spec.resources.gpu * gpu_class.memory_mib * _MIB
    if not room or not plan.weight_bytes:
        return Fit("", warnings)
    weights = plan.weight_bytes // 2 if plan.online_quantization else plan.weight_bytes
    longest = (values.request_tokens if values else 0) or plan.shape.context_tokens
    shortest = min(LEAST_REQUEST_TOKENS, longest or LEAST_REQUEST_TOKENS)
    # Keys and values may be kept in 8 bits.
    least = weights + shortest * plan.shape.kv_bytes_per_token // 2
    gpus = f"{spec.resources.gpu} x {gpu_class.memory_mib / 1024:.0f} GiB of {spec.resources.gpu_class}"
    if least > room and not (values and values.offloads):
        return Fit(_describe_fault(spec, plan, gpu_class, least, gpus), warnings)
    full = weights + longest * plan.shape.kv_bytes_per_token
    if full * 100 > room * USABLE_PERCENT:
        warnings.append(
            f"memory is tight: {weights / _GIB:.1f} GiB of weights and one request of {longest} tokens take"
            f" {full / _GIB:.1f} GiB of {gpus}; the engine may want a shorter context length"
        )
    return Fit("", warnings)


def _describe_fault(spec: Spec, plan: PlanRef, gpu_class: GpuClass, least: int, gpus: str) -> str:
    wanted = -(-least // (gpu_class.memory_mib * _MIB))
    smaller = (
        ""
        if plan.online_quantization or spec.model.quantization is not Quantization.FP16
        else (", or use a quantized checkpoint")
    )
    return (
        f"spec.resources.gpu: the model takes at least {least / _GIB:.1f} GiB (weights and one request), which"
        f" {gpus} cannot hold: use {wanted} or more{smaller}"
    )


def _check_heads(resources: Resources, plan: PlanRef) -> list[str]:
    heads = plan.shape.heads
    if not heads or heads % resources.gpu == 0:
        return []
    return [
        f"spec.resources.gpu: {resources.gpu} does not divide the model's {heads} attention heads, which engines"
        " that spread a model over GPUs ask for"
    ]
