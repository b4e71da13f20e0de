"""Which runtime serves which checkpoint under which quantization."""

from typing import Any

import pytest

from plnt.errors import UnsupportedCombination
from plnt.model.checkpoint import check_checkpoint, list_formats, needs_quantizing, read_checkpoint
from plnt.model.workflow_run import Quantization, Runtime

PLAIN: dict[str, Any] = {}
PACKED = {
    "quant_method": "compressed-tensors",
    "config_groups": {"group_0": {"weights": {"num_bits": 4, "type": "int"}}},
}
FLOAT = {
    "quant_method": "compressed-tensors",
    "config_groups": {"group_0": {"weights": {"num_bits": 8, "type": "float"}}},
}
STORED: dict[str, tuple[dict[str, Any], dict[str, dict[str, Any]]]] = {
    "plain": (PLAIN, {}),
    "fp8": ({"quant_method": "fp8", "activation_scheme": "dynamic"}, {}),
    "fp8 in blocks": ({"quant_method": "fp8", "weight_block_size": [128, 128]}, {}),
    "fp8 packed": (FLOAT, {}),
    "fp8 by modelopt": (PLAIN, {"hf_quant_config.json": {"quantization": {"quant_algo": "FP8"}}}),
    "awq": ({"quant_method": "awq", "bits": 4}, {}),
    "awq by modelopt": (PLAIN, {"hf_quant_config.json": {"quantization": {"quant_algo": "W4A16_AWQ"}}}),
    "gptq": ({"quant_method": "gptq", "bits": 4}, {}),
    "gptq in a side file": (PLAIN, {"quantize_config.json": {"bits": 4}}),
    "gptq of 8 bits": ({"quant_method": "gptq", "bits": 8}, {}),
    "4 bits packed": (PACKED, {}),
    "modelopt fp4": (PLAIN, {"hf_quant_config.json": {"quantization": {"quant_algo": "NVFP4"}}}),
}
ALL = {"vllm", "sglang", "tgi", "trt-llm"}
USUAL = ALL - {"trt-llm"}
LOADED: dict[tuple[str, str], set[str]] = {
    ("plain", "fp16"): ALL,
    ("plain", "fp8"): USUAL,
    ("fp8", "fp8"): USUAL,
    ("fp8 in blocks", "fp8"): ALL,
    ("fp8 packed", "fp8"): ALL,
    ("fp8 by modelopt", "fp8"): ALL - {"tgi"},
    ("awq", "awq-4bit"): USUAL,
    ("awq by modelopt", "awq-4bit"): {"trt-llm"},
    ("gptq", "gptq-4bit"): USUAL,
    ("gptq in a side file", "gptq-4bit"): USUAL,
    ("4 bits packed", "awq-4bit"): USUAL,
    ("4 bits packed", "gptq-4bit"): USUAL,
}
"""Checkpoint and quantization -> runtimes that serve it so; every other cell is refused."""
CELLS = [(stored, quantization, runtime) for stored in STORED for quantization in Quantization for runtime in Runtime]


def read(stored: str) -> Any:
    config, side = STORED[stored]
    return read_checkpoint({"quantization_config": config}, side)


@pytest.mark.parametrize(("stored", "quantization", "runtime"), CELLS)
def test_each_cell_of_the_matrix_is_served_or_refused(
    stored: str, quantization: Quantization, runtime: Runtime
) -> None:
    served = runtime.value in LOADED.get((stored, quantization.value), set())
    if served:
        check_checkpoint(runtime, quantization, read(stored), "s3://b/m")
        return
    with pytest.raises(UnsupportedCombination, match="s3://b/m") as refused:
        check_checkpoint(runtime, quantization, read(stored), "s3://b/m")
    assert f"{quantization} with runtime {runtime}" in str(refused.value)
    assert not str(refused.value).endswith(": ")


def test_every_format_of_a_runtime_has_a_checkpoint_that_it_serves() -> None:
    served = {(runtime, quantization) for (_, quantization), runtimes in LOADED.items() for runtime in runtimes}
    assert served == {(str(runtime), str(one)) for runtime in Runtime for one in list_formats(runtime)}


@pytest.mark.parametrize(
    ("stored", "quantization", "runtime", "words"),
    [
        ("plain", "fp8", "trt-llm", ["not quantized", "does not quantize while it loads", "vllm or tgi or sglang"]),
        ("awq", "awq-4bit", "trt-llm", ["awq 4-bit", "vllm or tgi or sglang", "modelopt w4a16_awq"]),
        ("fp8", "fp8", "trt-llm", ["without scales", "vllm or tgi or sglang"]),
        ("fp8", "fp16", "vllm", ["set spec.model.quantization to fp8"]),
        ("modelopt fp4", "fp8", "vllm", ["modelopt nvfp4", "spec.model.storageUri"]),
    ],
)
def test_refusal_says_what_the_checkpoint_is_and_what_would_work(
    stored: str, quantization: str, runtime: str, words: list[str]
) -> None:
    with pytest.raises(UnsupportedCombination) as refused:
        check_checkpoint(Runtime(runtime), Quantization(quantization), read(stored), "s3://b/m")
    for word in words:
        assert word in str(refused.value)


def test_only_fp8_of_unquantized_weights_is_made_while_loading() -> None:
    assert needs_quantizing(Quantization.FP8, read("plain"))
    assert not needs_quantizing(Quantization.FP8, read("fp8"))
    assert not needs_quantizing(Quantization.FP16, read("plain"))
