"""Small model folders of genuine layout."""

import json
import struct
from pathlib import Path
from typing import Any


def write_model(folder: Path, **stub: Any) -> Path:
    """Write a model of two shards, and ``stub`` as its ``stub.json``."""
    folder.mkdir(parents=True, exist_ok=True)
    config = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "max_position_embeddings": 4096}
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "tokenizer.json").write_text("{}")
    weight_map = {}
    for number in (1, 2):
        shard = f"model-0000{number}-of-00002.safetensors"
        tensor = f"model.layers.{number}.weight"
        header = json.dumps({tensor: {"dtype": "F16", "shape": [8], "data_offsets": [0, 16]}}).encode()
        (folder / shard).write_bytes(struct.pack("<Q", len(header)) + header + bytes(16))
        weight_map[tensor] = shard
    (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": weight_map}))
    (folder / "stub.json").write_text(json.dumps(stub))
    return folder
