"""Whether a checkpoint is quantized as ``spec.model.quantization`` says, by what its own files declare."""

from collections.abc import Mapping
from typing import Any

from plnt.errors import UnsupportedCombination
from plnt.model.message import Message
from plnt.model.workflow_run import Quantization, Runtime

_FP8_METHODS = frozenset({"fp8", "fbgemm_fp8"})


class Checkpoint(Message):
    """What a checkpoint declares about its numbers; an empty method is an unquantized one."""

    method: str = ""
    bits: int = 0
    """Bits of a weight, 0 where the files do not say."""
    is_float: bool = False

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
    return Checkpoint(method=method or "unknown", bits=8 if method in _FP8_METHODS else _bits(entry))


def _read_modelopt(entry: Mapping[str, Any]) -> Checkpoint:
    algorithm = str(entry.get("quant_algo", "")).lower()
    return Checkpoint(method=f"modelopt {algorithm}".strip(), bits=8 if algorithm == "fp8" else 4)


def _bits(entry: Mapping[str, Any]) -> int:
    value = next((entry[key] for key in ("bits", "w_bit", "num_bits") if key in entry), 0)
    return value if isinstance(value, int) else 0


def check_checkpoint(runtime: Runtime, quantization: Quantization, checkpoint: Checkpoint, where: str) -> None:
    """Check that the runtime can serve this checkpoint as ``spec.model.quantization`` says.

    Raises:
        UnsupportedCombination: it cannot; the message says what the checkpoint is and what to write.
    """
    if _fits(quantization, checkpoint):
        return
    fitting = [choice for choice in Quantization if _fits(choice, checkpoint)]
    remedy = f"set spec.model.quantization to {fitting[0]}" if fitting else "use another checkpoint"
    raise UnsupportedCombination(
        f"spec.model.quantization {quantization} with runtime {runtime}: the checkpoint in {where} is "
        f"{checkpoint.label}: {remedy}, or point spec.model.storageUri at a {quantization} checkpoint"
    )


def _fits(quantization: Quantization, checkpoint: Checkpoint) -> bool:
    method, packed = checkpoint.method, checkpoint.method == "compressed-tensors"
    match quantization:
        case Quantization.FP16:
            return not method
        case Quantization.FP8:
            # An unquantized checkpoint is quantized by the engine while it loads.
            floats = packed and checkpoint.bits == 8 and checkpoint.is_float
            return not method or method in _FP8_METHODS or method == "modelopt fp8" or floats
        case Quantization.AWQ_4BIT:
            return checkpoint.bits == 4 and (method in {"awq", "auto_awq"} or (packed and not checkpoint.is_float))
        case Quantization.GPTQ_4BIT:
            return checkpoint.bits == 4 and (method == "gptq" or (packed and not checkpoint.is_float))
