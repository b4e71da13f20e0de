"""The files without which a real engine does not start, checked as it would find out: by opening them."""

import json
import os
from pathlib import Path
from typing import Any

TOKENIZERS = ("tokenizer.json", "tokenizer.model", "vocab.json", "tekken.json")
INDEX = "model.safetensors.index.json"
_NOT_FOR_TRTLLM = frozenset({"awq", "gptq"})
_LONGEST_HEADER = 100_000_000
"""Bytes; the safetensors format's own bound."""


class ModelInvalid(Exception):
    """The model folder lacks what the engine needs; the text names the file."""


def check_folder(folder: Path) -> dict[str, Any]:
    """Check the folder and give the model's configuration.

    Raises:
        ModelInvalid: something is missing or damaged.
    """
    if not folder.is_dir():
        raise ModelInvalid(f"{folder} is no folder with a model")
    config = _read_json(folder / "config.json")
    if not config.get("architectures"):
        raise ModelInvalid(f"{folder}/config.json names no architectures")
    if not any((folder / name).is_file() for name in TOKENIZERS):
        raise ModelInvalid(f"{folder} holds no tokenizer (one of {', '.join(TOKENIZERS)})")
    _check_weights(folder)
    return config


def check_quantization(config: dict[str, Any], asked: str | None) -> None:
    """Refuse a quantization flag that contradicts the checkpoint, as vLLM and SGLang do.

    Raises:
        ModelInvalid: they differ.
    """
    stored = (config.get("quantization_config") or {}).get("quant_method")
    if stored and asked and not asked.startswith(stored):
        raise ModelInvalid(
            f"Quantization method specified in the model config ({stored}) does not match the quantization method"
            f" specified in the `quantization` argument ({asked})."
        )


def check_trtllm_format(config: dict[str, Any]) -> None:
    """Refuse a checkpoint for which TensorRT-LLM's PyTorch backend has no loader.

    Raises:
        ModelInvalid: the format is one of those.
    """
    stored = config.get("quantization_config") or {}
    if stored.get("quant_method") in _NOT_FOR_TRTLLM:
        raise ModelInvalid(f"Unsupported quantization_config: {stored}.")


def _check_weights(folder: Path) -> None:
    if (folder / INDEX).exists():
        shards: dict[str, set[str]] = {}
        for tensor, shard in (_read_json(folder / INDEX).get("weight_map") or {}).items():
            shards.setdefault(shard, set()).add(tensor)
    else:
        shards = {path.name: set() for path in folder.glob("*.safetensors")}
    if not shards:
        raise ModelInvalid(f"Cannot find any model weights in {folder}")
    for shard, tensors in sorted(shards.items()):
        missing = tensors - read_tensor_names(folder / shard)
        if missing:
            raise ModelInvalid(f"{folder / shard} lacks tensor {min(missing)} that {INDEX} names")


def read_tensor_names(path: Path) -> set[str]:
    """Read the header of a safetensors file and check the file's size against it.

    Raises:
        ModelInvalid: the file is missing, cut or no safetensors file.
    """
    try:
        with path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            length = int.from_bytes(file.read(8), "little")
            if not 2 <= length <= min(_LONGEST_HEADER, size):
                raise ModelInvalid(f"{path}: Error while deserializing header: header too large or too small")
            header = json.loads(file.read(length))
        end = max((entry["data_offsets"][1] for name, entry in header.items() if name != "__metadata__"), default=0)
    except OSError as error:
        raise ModelInvalid(f"{path}: {error.strerror}") from None
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ModelInvalid(f"{path}: Error while deserializing header: {error}") from None
    if 8 + length + end != size:
        raise ModelInvalid(
            f"{path}: Error while deserializing header: incomplete metadata, file not fully covered"
            f" ({size} bytes, header says {8 + length + end})"
        )
    return set(header) - {"__metadata__"}


def _read_json(path: Path) -> dict[str, Any]:
    try:
        data = json.loads(path.read_text())
    except OSError as error:
        raise ModelInvalid(f"{path}: {error.strerror}") from None
    except ValueError as error:
        raise ModelInvalid(f"{path}: {error}") from None
    if not isinstance(data, dict):
        raise ModelInvalid(f"{path} holds no JSON object")
    return data
