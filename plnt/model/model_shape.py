"""What a model's ``config.json`` says about its size at run time."""

from collections.abc import Mapping
from typing import Any

from plnt.model.message import Message

KV_BYTES_PER_NUMBER = 2
"""Every engine keeps keys and values in 16 bits unless it is told otherwise."""

_OTHER_CACHES = ("sliding_window", "layer_types", "kv_lora_rank", "ssm_cfg", "mamba_d_state", "attn_type_list")
"""Keys of models whose layers do not all keep every token's keys and values."""


class ModelShape(Message):
    """Numbers that decide whether a model fits; 0 = not said, or said in a way that is not understood."""

    heads: int = 0
    """Attention heads: a tensor-parallel size has to divide them."""
    context_tokens: int = 0
    """Longest request, prompt and answer together."""
    kv_bytes_per_token: int = 0
    """Key-value cache of one token over all layers and GPUs, in bytes."""


def read_shape(config: Mapping[str, Any]) -> ModelShape:
    """Read the shape from ``config.json``; a multimodal model's is that of its text part."""
    text = config.get("text_config")
    found = text if isinstance(text, Mapping) else config
    heads = _number(found, "num_attention_heads")
    return ModelShape(
        heads=heads,
        context_tokens=_number(found, "max_position_embeddings"),
        kv_bytes_per_token=_count_kv_bytes(found, heads),
    )


def _count_kv_bytes(config: Mapping[str, Any], heads: int) -> int:
    if any(config.get(key) for key in _OTHER_CACHES) or not heads:
        return 0
    kv_heads = _number(config, "num_key_value_heads") or heads
    head_size = _number(config, "head_dim") or _number(config, "hidden_size") // heads
    return 2 * _number(config, "num_hidden_layers") * kv_heads * head_size * KV_BYTES_PER_NUMBER


def _number(config: Mapping[str, Any], key: str) -> int:
    value = config.get(key)
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else 0
