"""Whether a model fits into the GPUs of a pod: refused by lower bounds, warned about by likely sizes."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plnt.model.fit import judge_fit
from plnt.model.messages import ExtraValues, GpuClass, PlanRef
from plnt.model.model_shape import ModelShape, read_shape
from tests.fakes.steps import make_spec

GIB = 2**30
LLAMA_70B: dict[str, Any] = {
    "num_attention_heads": 64,
    "num_key_value_heads": 8,
    "num_hidden_layers": 80,
    "hidden_size": 8192,
    "max_position_embeddings": 131_072,
}
WEIGHTS = 141_107_412_992
"""Bytes of Llama 3.1 70B in bfloat16."""


def judge(
    gpu: int, gib: float, *, tokens: int = 0, offloads: bool = False, config: dict[str, Any] | None = None, **plan: Any
) -> Any:
    shape = read_shape(LLAMA_70B if config is None else config)
    made = PlanRef(digest="d", files=1, bytes=WEIGHTS, **{"weight_bytes": WEIGHTS, "shape": shape, **plan})
    spec = make_spec(resources__gpu=gpu)
    values = ExtraValues(name="extra", request_tokens=tokens, offloads=offloads)
    return judge_fit(spec, made, GpuClass(resource_name="x/y", memory_mib=int(gib * 1024)), values)


def test_shape_is_read_from_the_configuration() -> None:
    shape = read_shape(LLAMA_70B)
    assert (shape.heads, shape.context_tokens, shape.kv_bytes_per_token) == (64, 131_072, 327_680)
    assert read_shape({"text_config": LLAMA_70B}) == shape


@pytest.mark.parametrize(
    "config",
    [{}, {"num_attention_heads": "x"}, {**LLAMA_70B, "kv_lora_rank": 512}, {**LLAMA_70B, "sliding_window": 4096}],
)
def test_shape_that_is_not_understood_says_nothing_of_keys_and_values(config: dict[str, Any]) -> None:
    assert read_shape(config).kv_bytes_per_token == 0


def test_weights_that_the_gpus_cannot_hold_are_refused_with_the_number_that_would_do() -> None:
    fault = judge(1, 80).fault
    assert fault.startswith("spec.resources.gpu: ")
    assert "131.7 GiB" in fault
    assert "1 x 80 GiB of nvidia.com/h100" in fault
    assert "use 2 or more" in fault


@pytest.mark.parametrize(
    ("gpu", "gib", "tokens", "tight"),
    [(2, 80, 0, True), (2, 80, 4096, False), (4, 80, 0, False), (8, 80, 0, False)],
    ids=["whole context", "shorter context", "four", "eight"],
)
def test_full_context_that_hardly_fits_is_warned_about(gpu: int, gib: float, tokens: int, *, tight: bool) -> None:
    fault, warnings = judge(gpu, gib, tokens=tokens)
    assert fault == ""
    assert bool(warnings) is tight
    assert all("memory is tight" in warning and "131072 tokens" in warning for warning in warnings)


def test_weights_that_may_lie_elsewhere_are_not_refused() -> None:
    assert judge(1, 80, offloads=True).fault == ""


def test_weights_that_are_quantized_while_loading_take_half() -> None:
    assert judge(1, 80, online_quantization=True).fault == ""


@pytest.mark.parametrize("plan", [{"weight_bytes": 0}, {"shape": ModelShape(), "weight_bytes": 1}])
def test_what_is_unknown_never_blocks(plan: dict[str, Any]) -> None:
    assert judge(1, 0.5, **plan) == ("", [])
    assert judge(1, 0) == ("", [])


def test_gpus_that_do_not_divide_the_heads_are_warned_about() -> None:
    (warning,) = judge(3, 200).warnings
    assert "3 does not divide the model's 64 attention heads" in warning


@given(gpu=st.integers(1, 16), gib=st.integers(1, 1000), more=st.integers(1, 100))
def test_more_memory_never_turns_a_yes_into_a_no(gpu: int, gib: int, more: int) -> None:
    if not judge(gpu, gib).fault:
        assert not judge(gpu, gib + more).fault
