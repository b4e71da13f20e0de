"""Which files of a source a runtime needs, and whether they are what their names say.

Repositories hold the same weights in several formats; taking all doubles or trebles a pull.
"""

import json
from collections.abc import Collection, Iterable, Mapping
from fnmatch import fnmatch
from typing import Any

from plnt.errors import SpecInvalid, WeightsNotFound

INDEX = "model.safetensors.index.json"
CONFIG = "config.json"
QUANTIZATION_FILES = ("hf_quant_config.json", "quantize_config.json", "quant_config.json")
TOKENIZERS = ("tokenizer.json", "tokenizer.model", "vocab.json", "tekken.json")
"""One of these is there, or the runtime cannot start."""
MAX_SIDE_FILE_BYTES = 64 << 20
"""Largest JSON file that is taken as configuration or index."""
MAX_POINTER_BYTES = 1024
"""A git-lfs pointer is about 130 bytes; weights are never this small."""
MAX_HEADER_BYTES = 100_000_000
"""Largest header that the safetensors library reads."""

_SIDE_FILES = (
    "*.json", "tokenizer*", "*.model", "*.tiktoken", "vocab*", "merges.txt", "*.jinja", "LICENSE*", "USE_POLICY*",
)  # fmt: skip
_NEVER = (
    "original/*", "pytorch_model*", "tf_model*", "flax_model*", "openvino/*", "onnx/*", "coreml/*", ".*", "*/.*",
    "*.safetensors", "*.bin", "*.pt", "*.pth", "*.ckpt", "*.h5", "*.msgpack", "*.ot", "*.onnx*", "*.tflite", "*.gguf",
    "*.py",
)  # fmt: skip
_LFS_MARK = b"version https://git-lfs"


def choose_weights(names: Collection[str], index: Mapping[str, Any] | None, where: str) -> list[str]:
    """Give the weight files among ``names``: those of the index, else all safetensors in the folder itself.

    Raises:
        WeightsNotFound: a shard that the index lists is missing, or there are no safetensors.
        SpecInvalid: the index is none.
    """
    if index is not None:
        shards = sorted(_shards(index, where))
        missing = [shard for shard in shards if shard not in names]
        if missing:
            raise WeightsNotFound(
                f"{where}: {len(missing)} of {len(shards)} shards that {INDEX} lists are missing, the first is "
                f"{missing[0]}: upload them"
            )
        return shards
    if "model.safetensors" in names:
        return ["model.safetensors"]
    found = sorted(name for name in names if fnmatch(name, "*.safetensors") and "/" not in name)
    weights = [name for name in found if not name.startswith("consolidated")]
    if not weights:
        raise WeightsNotFound(
            f"{where} holds no safetensors files that a runtime can load: upload model.safetensors, or {INDEX} and its "
            f"shards (pickled *.bin files and consolidated.safetensors are not taken)"
        )
    return weights


def _shards(index: Mapping[str, Any], where: str) -> set[str]:
    shards = index.get("weight_map")
    if not isinstance(shards, dict) or not shards or not all(isinstance(name, str) for name in shards.values()):
        raise SpecInvalid(f"{where}: {INDEX} has no weight_map: upload the model's own index")
    return set(shards.values())


def choose_side_files(sizes: Mapping[str, int]) -> list[str]:
    """Give the files beside the weights: configuration, tokenizer, templates, licence."""
    return sorted(
        name
        for name, size in sizes.items()
        if _matches(name, _SIDE_FILES) and not _matches(name, _NEVER) and not _is_bulk(name, size)
    )


def _is_bulk(name: str, size: int) -> bool:
    return name.endswith(".json") and size > MAX_SIDE_FILE_BYTES


def _matches(name: str, patterns: Iterable[str]) -> bool:
    return any(fnmatch(name, pattern) or fnmatch(name.rpartition("/")[2], pattern) for pattern in patterns)


def check_side_files(names: Collection[str], where: str) -> None:
    """Check that what every runtime needs beside the weights is there.

    Raises:
        WeightsNotFound: ``config.json`` or every kind of tokenizer is missing.
    """
    if CONFIG not in names:
        raise WeightsNotFound(f"{where} has no {CONFIG}: spec.model.storageUri must be the model's own folder")
    if not any(name in names for name in TOKENIZERS):
        raise WeightsNotFound(f"{where} has no tokenizer (one of {', '.join(TOKENIZERS)}): upload it")


def check_first_bytes(data: bytes, name: str, where: str) -> None:
    """Check that a small file is not the pointer that git leaves in place of a large one.

    Raises:
        WeightsNotFound: it is.
    """
    if data.startswith(_LFS_MARK):
        raise WeightsNotFound(
            f"{where}: {name} is a git-lfs pointer, not the file itself: run `git lfs pull` and upload again"
        )


def check_safetensors(header: bytes, size: int, name: str, where: str) -> None:
    """Check a safetensors file's header (the bytes after the length) against the file's size in bytes.

    Raises:
        WeightsNotFound: the file is cut off or is none.
    """
    fault = _find_header_fault(header, size)
    if fault:
        raise WeightsNotFound(f"{where}: {name} {fault}: upload it again")


def _find_header_fault(header: bytes, size: int) -> str:
    try:
        tensors = json.loads(header)
        ends = [entry["data_offsets"][1] for key, entry in tensors.items() if key != "__metadata__"]
        end = 8 + len(header) + max(ends, default=0)
    except (ValueError, TypeError, KeyError, IndexError, AttributeError):
        return "is no safetensors file"
    return "" if end == size else f"has {size} bytes where its header says {end}"


def count_header_bytes(first: bytes, size: int, name: str, where: str) -> int:
    """Give the length in bytes of a safetensors header from the file's first 8 bytes.

    Raises:
        WeightsNotFound: they cannot start a safetensors file of ``size`` bytes.
    """
    length = int.from_bytes(first[:8], "little") if len(first) >= 8 else -1
    if not 2 <= length <= min(MAX_HEADER_BYTES, size - 8):
        raise WeightsNotFound(f"{where}: {name} is no safetensors file: upload it again")
    return length


def parse_json_object(data: bytes, name: str, where: str) -> dict[str, Any]:
    """Parse a JSON object.

    Raises:
        SpecInvalid: ``data`` is none.
    """
    check_first_bytes(data, name, where)
    try:
        value = json.loads(data)
    except ValueError:
        value = None
    if not isinstance(value, dict):
        raise SpecInvalid(f"{where}: {name} is no JSON object: upload the model's own file")
    return value
