"""Makes a small but genuine model folder: real file formats, real layout, random numbers for weights.

The same arguments give the same bytes, so that two sandboxes agree on every digest.
"""

import json
import random
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from math import prod
from pathlib import Path
from typing import Any

DEFAULT_BYTES = 48 << 20
DEFAULT_SHARDS = 4
_BYTES_OF_BF16 = 2
_HIDDEN, _HEADS, _VOCABULARY = 256, 4, 512
_INTERMEDIATE = 688
_CHAT_TEMPLATE = "{% for message in messages %}{{ message['role'] }}: {{ message['content'] }}\n{% endfor %}"

Shapes = dict[str, tuple[int, ...]]


@dataclass(frozen=True, slots=True)
class ModelFolder:
    """What to make. ``stub`` goes to ``stub.json``, which the stub engine reads; none = no such file."""

    total_bytes: int = DEFAULT_BYTES
    shards: int = DEFAULT_SHARDS
    seed: int = 1
    quantization: Mapping[str, Any] | None = None
    """``quantization_config`` of ``config.json``."""
    stub: Mapping[str, Any] | None = field(default=None)
    """Keys ``ttftMs``, ``tpotMs``, ``loadSeconds``, ``faults``."""


def write_model(folder: Path, model: ModelFolder | None = None) -> None:
    """Write the model's files into ``folder``."""
    model = model or ModelFolder()
    folder.mkdir(parents=True, exist_ok=True)
    layers = _count_layers(model.total_bytes)
    for name, content in _side_files(model, layers).items():
        (folder / name).write_text(json.dumps(content, indent=2) + "\n")
    weight_map: dict[str, str] = {}
    for number, tensors in enumerate(_split(_shapes(layers), model.shards), start=1):
        name = f"model-{number:05d}-of-{model.shards:05d}.safetensors"
        write_safetensors(folder / name, tensors, seed=model.seed * 1000 + number)
        weight_map.update(dict.fromkeys(tensors, name))
    total = sum(_size(shape) for shape in _shapes(layers).values())
    index = {"metadata": {"total_size": total}, "weight_map": weight_map}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index, indent=2) + "\n")


def write_safetensors(path: Path, tensors: Shapes, seed: int) -> None:
    """Write one file: length of the header, header, tensors without a gap."""
    ends = [0]
    for shape in tensors.values():
        ends.append(ends[-1] + _size(shape))
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    for (name, shape), offsets in zip(tensors.items(), pairwise(ends), strict=True):
        header[name] = {"dtype": "BF16", "shape": list(shape), "data_offsets": list(offsets)}
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    numbers = random.Random(seed)  # noqa: S311 - weights of a stub
    with path.open("wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for shape in tensors.values():
            file.write(numbers.randbytes(_size(shape)))


def _size(shape: tuple[int, ...]) -> int:
    return prod(shape) * _BYTES_OF_BF16


def _layer(number: int) -> Shapes:
    prefix = f"model.layers.{number}"
    attention = {f"{prefix}.self_attn.{part}_proj.weight": (_HIDDEN, _HIDDEN) for part in "qkvo"}
    return {
        f"{prefix}.input_layernorm.weight": (_HIDDEN,),
        f"{prefix}.mlp.down_proj.weight": (_HIDDEN, _INTERMEDIATE),
        f"{prefix}.mlp.gate_proj.weight": (_INTERMEDIATE, _HIDDEN),
        f"{prefix}.mlp.up_proj.weight": (_INTERMEDIATE, _HIDDEN),
        f"{prefix}.post_attention_layernorm.weight": (_HIDDEN,),
        **attention,
    }


def _shapes(layers: int) -> Shapes:
    shapes: Shapes = {"model.embed_tokens.weight": (_VOCABULARY, _HIDDEN)}
    for number in range(layers):
        shapes.update(_layer(number))
    shapes["model.norm.weight"] = (_HIDDEN,)
    shapes["lm_head.weight"] = (_VOCABULARY, _HIDDEN)
    return shapes


def _count_layers(total_bytes: int) -> int:
    fixed = sum(_size(shape) for shape in _shapes(0).values())
    return max(1, round((total_bytes - fixed) / sum(_size(shape) for shape in _layer(0).values())))


def _split(shapes: Shapes, shards: int) -> Iterator[Shapes]:
    """Split by size, in order, as the tools of the trade do."""
    share = sum(_size(shape) for shape in shapes.values()) / shards
    names = list(shapes)
    done, start = 0, 0
    for shard in range(1, shards + 1):
        stop = start
        while stop < len(names) and (done < share * shard or shard == shards):
            done += _size(shapes[names[stop]])
            stop += 1
        yield {name: shapes[name] for name in names[start:stop]}
        start = stop


def _side_files(model: ModelFolder, layers: int) -> dict[str, Any]:
    config: dict[str, Any] = {
        "architectures": ["LlamaForCausalLM"],
        "bos_token_id": 1,
        "eos_token_id": 2,
        "head_dim": _HIDDEN // _HEADS,
        "hidden_act": "silu",
        "hidden_size": _HIDDEN,
        "intermediate_size": _INTERMEDIATE,
        "max_position_embeddings": 131072,
        "model_type": "llama",
        "num_attention_heads": _HEADS,
        "num_hidden_layers": layers,
        "num_key_value_heads": _HEADS,
        "rms_norm_eps": 1e-05,
        "rope_theta": 500000.0,
        "tie_word_embeddings": False,
        "torch_dtype": "bfloat16",
        "vocab_size": _VOCABULARY,
    }
    if model.quantization is not None:
        config["quantization_config"] = dict(model.quantization)
    files: dict[str, Any] = {
        "config.json": config,
        "generation_config.json": {"bos_token_id": 1, "eos_token_id": 2, "temperature": 0.6, "top_p": 0.9},
        "tokenizer.json": _tokenizer(),
        "tokenizer_config.json": {
            "bos_token": "<s>",
            "chat_template": _CHAT_TEMPLATE,
            "eos_token": "</s>",
            "model_max_length": 131072,
            "tokenizer_class": "PreTrainedTokenizerFast",
            "unk_token": "<unk>",
        },
    }
    return files if model.stub is None else {**files, "stub.json": dict(model.stub)}


def _tokenizer() -> dict[str, Any]:
    special = ["<unk>", "<s>", "</s>"]
    words = special + [f"<0x{number:02X}>" for number in range(256)]
    words += [f"token{number}" for number in range(len(words), _VOCABULARY)]
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [{"id": number, "content": word, **flags} for number, word in enumerate(special)],
        "normalizer": None,
        "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True},
        "post_processor": None,
        "decoder": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True},
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": "<unk>",
            "fuse_unk": False,
            "byte_fallback": True,
            "vocab": {word: number for number, word in enumerate(words)},
            "merges": [],
        },
    }
