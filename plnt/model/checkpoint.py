"""Whether a runtime can serve a checkpoint as ``spec.model.quantization`` says, by what its own files declare.

The table follows the loaders of vLLM 0.33, SGLang 0.5.23, Text Generation Inference 3.3.7 and TensorRT-LLM 1.3.
"""

from collections.abc import Mapping
from typing import Any

from plnt.errors import UnsupportedCombination
from plnt.model.message import Message
from plnt.model.workflow_run import Quantization, Runtime

_FP8_METHODS = frozenset({"fp8", "fbgemm_fp8"})
_PACKED = "compressed-tensors"
_MODELOPT_FP8 = "modelopt fp8"
_MODELOPT_AWQ = "modelopt w4a16_awq"

_LOADED: dict[tuple[Runtime, Quantization], frozenset[str]] = {
    (Runtime.VLLM, Quantization.FP8): _FP8_METHODS | {_PACKED, _MODELOPT_FP8},
    (Runtime.VLLM, Quantization.AWQ_4BIT): frozenset({"awq", "auto_awq", _PACKED}),
    (Runtime.VLLM, Quantization.GPTQ_4BIT): frozenset({"gptq", _PACKED}),
    (Runtime.SGLANG, Quantization.FP8): _FP8_METHODS | {_PACKED, _MODELOPT_FP8},
    (Runtime.SGLANG, Quantization.AWQ_4BIT): frozenset({"awq", "auto_awq", _PACKED}),
    (Runtime.SGLANG, Quantization.GPTQ_4BIT): frozenset({"gptq", _PACKED}),
    (Runtime.TGI, Quantization.FP8): _FP8_METHODS | {_PACKED},
    (Runtime.TGI, Quantization.AWQ_4BIT): frozenset({"awq", _PACKED}),
    (Runtime.TGI, Quantization.GPTQ_4BIT): frozenset({"gptq", _PACKED}),
    (Runtime.TRT_LLM, Quantization.FP8): frozenset({"fp8", _PACKED, _MODELOPT_FP8}),
    (Runtime.TRT_LLM, Quantization.AWQ_4BIT): frozenset({_MODELOPT_AWQ}),
}
"""Ways of storing a format that a runtime loads; llm-compressor stores AWQ and GPTQ alike, as compressed tensors.

A pair that is not here is a format that the runtime never loads; every runtime loads unquantized weights.
"""
_QUANTIZES_WHILE_LOADING = frozenset({Runtime.VLLM, Runtime.SGLANG, Runtime.TGI})
"""Runtimes that make fp8 of unquantized weights while they load them."""


class Checkpoint(Message):
    """What a checkpoint declares about its numbers; an empty method is an unquantized one."""

    method: str = ""
    bits: int = 0
    """Bits of a weight, 0 where the files do not say."""
    is_float: bool = False
    is_scaled: bool = True
    """The scales are in the files, by block or for activations; else the engine finds them at run time."""

    @property
    def label(self) -> str:
        """Words for people."""
        bits = f" {self.bits}-bit" if self.bits else ""
        return f"{self.method}{bits} quantized" if self.method else "not quantized"


def read_checkpoint(config: Mapping[str, Any], side: Mapping[str, Mapping[str, Any]]) -> Checkpoint:
    """Read how the weights are stored from ``config.json`` and the quantization files beside it (name -> content).

    The order is that of the engines: the configuration itself, then ModelOpt's file, then the older ones.
    """
    text = config.get("text_config")
    declared = [config.get("quantization_config"), config.get("compression_config")]
    declared += [text.get("quantization_config")] if isinstance(text, Mapping) else []
    found = next((entry for entry in declared if isinstance(entry, Mapping) and entry), None)
    if found is not None:
        return _read_declared(found)
    modelopt = side.get("hf_quant_config.json", {}).get("quantization")
    if isinstance(modelopt, Mapping):
        return _read_modelopt(modelopt)
    for name, method in (("quantize_config.json", "gptq"), ("quant_config.json", "awq")):
        if name in side:
            return Checkpoint(method=method, bits=_bits(side[name]))
    return Checkpoint()


def _read_declared(entry: Mapping[str, Any]) -> Checkpoint:
    method = str(entry.get("quant_method", "")).lower().replace("_", "-")
    if method == "modelopt" or "quant_algo" in entry:
        return _read_modelopt(entry)
    if method == "compressed-tensors":
        groups = entry.get("config_groups")
        weights = [group.get("weights") for group in groups.values()] if isinstance(groups, Mapping) else []
        first = next((item for item in weights if isinstance(item, Mapping)), {})
        return Checkpoint(method=method, bits=_bits(first), is_float=first.get("type") == "float")
    method = method.replace("-", "_")
    if method not in _FP8_METHODS:
        return Checkpoint(method=method or "unknown", bits=_bits(entry))
    is_scaled = bool(entry.get("weight_block_size")) or entry.get("activation_scheme") == "static"
    return Checkpoint(method=method, bits=8, is_float=True, is_scaled=is_scaled)


def _read_modelopt(entry: Mapping[str, Any]) -> Checkpoint:
    algorithm = str(entry.get("quant_algo", "")).lower()
    return Checkpoint(
        method=f"modelopt {algorithm}".strip(), bits=8 if algorithm == "fp8" else 4, is_float=algorithm == "fp8"
    )


def _bits(entry: Mapping[str, Any]) -> int:
    value = next((entry[key] for key in ("bits", "w_bit", "num_bits") if key in entry), 0)
    return value if isinstance(value, int) else 0


def list_formats(runtime: Runtime) -> list[Quantization]:
    """Give the formats that a runtime can serve from some checkpoint."""
    return [Quantization.FP16, *(one for one in Quantization if (runtime, one) in _LOADED)]


def needs_quantizing(quantization: Quantization, checkpoint: Checkpoint) -> bool:
    """Whether the engine has to quantize the weights while it loads them."""
    return quantization is Quantization.FP8 and not checkpoint.method


def check_checkpoint(runtime: Runtime, quantization: Quantization, checkpoint: Checkpoint, where: str) -> None:
    """Check that the runtime can serve this checkpoint as ``spec.model.quantization`` says.

    Raises:
        UnsupportedCombination: it cannot; the message says what the checkpoint is and what would work.
    """
    if _loads(runtime, quantization, checkpoint):
        return
    fitting = [one for one in Quantization if _loads(runtime, one, checkpoint)]
    others = [one for one in Runtime if _loads(one, quantization, checkpoint)]
    remedies = [f"set spec.model.quantization to {fitting[0]}"] if fitting else []
    remedies += [f"set spec.runtime to {' or '.join(others)}"] if others else []
    if quantization in list_formats(runtime):
        remedies.append(
            f"point spec.model.storageUri at a checkpoint that is stored as {_say_stored(runtime, quantization)}"
        )
    raise UnsupportedCombination(
        f"spec.model.quantization {quantization} with runtime {runtime}: the checkpoint in {where} is "
        f"{checkpoint.label}{_say_reason(runtime, quantization, checkpoint)}: {', or '.join(remedies)}"
    )


def _loads(runtime: Runtime, quantization: Quantization, checkpoint: Checkpoint) -> bool:
    if quantization is Quantization.FP16:
        return not checkpoint.method
    if needs_quantizing(quantization, checkpoint):
        return runtime in _QUANTIZES_WHILE_LOADING
    if checkpoint.method not in _LOADED.get((runtime, quantization), frozenset()):
        return False
    if quantization is not Quantization.FP8:
        return checkpoint.bits == 4 and not checkpoint.is_float
    needs_scales = runtime is Runtime.TRT_LLM and checkpoint.method == "fp8"
    return checkpoint.bits == 8 and checkpoint.is_float and (checkpoint.is_scaled or not needs_scales)


def _say_stored(runtime: Runtime, quantization: Quantization) -> str:
    ways = sorted(_LOADED.get((runtime, quantization), frozenset())) or ["fp16 or bf16"]
    return " or ".join(ways)


def _say_reason(runtime: Runtime, quantization: Quantization, checkpoint: Checkpoint) -> str:
    if needs_quantizing(quantization, checkpoint):
        return f", and {runtime} does not quantize while it loads"
    if checkpoint.method == "fp8" and not checkpoint.is_scaled and quantization is Quantization.FP8:
        return f" without scales, which {runtime} does not load"
    return ""
