import json
from typing import Any

import pytest

from plnt.errors import UnsupportedCombination, WeightsNotFound
from plnt.model.checkpoint import check_checkpoint, read_checkpoint
from plnt.model.file_name import find_collision, find_name_fault
from plnt.model.pull_plan import PlannedFile, PullPlan, TreeFile, digest_of, pin_key, render_manifest, render_plan
from plnt.model.pull_progress import PullProgress, describe_progress
from plnt.model.weight_files import check_safetensors, choose_side_files, choose_weights, count_header_bytes
from plnt.model.workflow_run import Quantization, Runtime

WHERE = "s3://bucket/model"


@pytest.mark.parametrize(
    "name",
    [
        "",
        "/a",
        "../a",
        "a/..",
        "a//b",
        "./a",
        "C:/a",
        "a\\b",
        "a\0b",
        "a\n",
        ".plnt-x",
        "a/.PLNT",
        "x" * 256,
        "/".join("a" * 17),
    ],
)
def test_name_that_could_leave_its_folder_or_break_it_is_a_fault(name: str) -> None:
    assert find_name_fault(name)


@pytest.mark.parametrize("name", ["config.json", "a/b.safetensors", "ünï", "..a", "a..b", ".gitattributes"])
def test_ordinary_name_is_no_fault(name: str) -> None:
    assert find_name_fault(name) == ""


def test_names_that_clash_are_found() -> None:
    assert "case" in find_collision(["a/Readme", "a/README"])
    assert "folder" in find_collision(["a", "a/b"])
    assert find_collision(["a/b", "a/c", "b"]) == ""


def test_shards_of_the_index_are_taken_and_nothing_else() -> None:
    index = {"weight_map": {"x": "model-1.safetensors", "y": "model-2.safetensors"}}
    names = ["model-1.safetensors", "model-2.safetensors", "model.safetensors", "consolidated.safetensors"]
    assert choose_weights(names, index, WHERE) == ["model-1.safetensors", "model-2.safetensors"]


def test_safetensors_of_the_folder_are_taken_when_there_is_no_index() -> None:
    assert choose_weights(["a.safetensors", "consolidated.safetensors", "sub/x.safetensors"], None, WHERE) == [
        "a.safetensors"
    ]
    with pytest.raises(WeightsNotFound, match="no safetensors"):
        choose_weights(["pytorch_model.bin"], None, WHERE)


def test_side_files_are_those_that_runtimes_read() -> None:
    names = [
        "config.json",
        "tokenizer.model",
        "merges.txt",
        "chat.jinja",
        "README.md",
        ".git/x.json",
        "onnx/config.json",
    ]
    assert choose_side_files(dict.fromkeys(names, 1)) == ["chat.jinja", "config.json", "merges.txt", "tokenizer.model"]
    assert choose_side_files({"huge.json": 1 << 30}) == []


def test_safetensors_header_must_match_the_size() -> None:
    header = json.dumps({"a": {"dtype": "U8", "shape": [4], "data_offsets": [0, 4]}}).encode()
    size = 8 + len(header) + 4
    assert count_header_bytes(len(header).to_bytes(8, "little"), size, "m", WHERE) == len(header)
    check_safetensors(header, size, "m", WHERE)
    for fault in ((header, size + 1), (b"{", size), (b"[]", size), (b'{"a": 1}', size)):
        with pytest.raises(WeightsNotFound):
            check_safetensors(*fault, "m", WHERE)
    with pytest.raises(WeightsNotFound):
        count_header_bytes(b"\xff" * 8, size, "m", WHERE)


FP8 = {"quantization_config": {"quant_method": "fp8"}}
AWQ = {"quantization_config": {"quant_method": "awq", "bits": 4}}
GPTQ = {"quantization_config": {"quant_method": "gptq", "bits": 4}}
GPTQ_8 = {"quantization_config": {"quant_method": "gptq", "bits": 8}}
PACKED = {
    "quantization_config": {
        "quant_method": "compressed-tensors",
        "config_groups": {"group_0": {"weights": {"num_bits": 4, "type": "int"}}},
    }
}
PACKED_FP8 = {
    "quantization_config": {
        "quant_method": "compressed-tensors",
        "config_groups": {"group_0": {"weights": {"num_bits": 8, "type": "float"}}},
    }
}
NESTED = {"text_config": AWQ}


@pytest.mark.parametrize(
    ("config", "fits"),
    [
        pytest.param({}, {"fp16", "fp8"}, id="plain, fp8 while loading"),
        pytest.param(FP8, {"fp8"}, id="fp8"),
        pytest.param(PACKED_FP8, {"fp8"}, id="compressed-tensors fp8"),
        pytest.param(AWQ, {"awq-4bit"}, id="awq"),
        pytest.param(NESTED, {"awq-4bit"}, id="awq of the text model"),
        pytest.param(GPTQ, {"gptq-4bit"}, id="gptq"),
        pytest.param(GPTQ_8, set(), id="gptq with 8 bits"),
        pytest.param(PACKED, {"awq-4bit", "gptq-4bit"}, id="compressed-tensors int4"),
    ],
)
def test_quantization_must_be_that_of_the_checkpoint(config: dict[str, Any], fits: set[str]) -> None:
    found = set()
    for quantization in Quantization:
        try:
            check_checkpoint(Runtime.VLLM, quantization, read_checkpoint(config, {}), WHERE)
        except UnsupportedCombination:
            continue
        found.add(str(quantization))
    assert found == fits


def test_quantization_files_beside_the_configuration_are_read() -> None:
    assert (
        read_checkpoint({}, {"hf_quant_config.json": {"quantization": {"quant_algo": "FP8"}}}).method == "modelopt fp8"
    )
    assert read_checkpoint({}, {"quantize_config.json": {"bits": 4}}).bits == 4


def test_digests_do_not_depend_on_order_and_keys_on_nothing_but_the_content() -> None:
    files = [TreeFile(path=path, size=1, sha256="0" * 64) for path in ("b", "a")]
    assert render_manifest(files) == render_manifest(reversed(files))
    file = PlannedFile(path="a", size=1, validator="x")
    plan = PullPlan(source=WHERE, files=[file])
    assert digest_of(render_plan(plan)) == digest_of(render_plan(PullPlan.model_validate_json(render_plan(plan))))
    assert pin_key(plan, file) == pin_key(plan, file.model_copy(update={"modified": "later"}))
    assert pin_key(plan, file) != pin_key(plan, file.model_copy(update={"validator": "y"}))


@pytest.mark.parametrize(
    ("progress", "words"),
    [
        (PullProgress(bytes_done=1 << 30, bytes_total=4 << 30, bytes_per_second=1 << 20, eta_seconds=3725),
         "1.0 of 4.0 GiB, 1.0 MiB/s, ETA 1 h 2 min"),
        (PullProgress(bytes_done=0, bytes_total=1 << 20, retries=2), "0.0 of 1.0 MiB, 0.0 MiB/s, 2 retries"),
        (PullProgress(bytes_total=1 << 20, waiting=True), "another rollout pulls the same files: 0.0 of 1.0 MiB"),
    ],
)  # fmt: skip
def test_progress_is_one_line(progress: PullProgress, words: str) -> None:
    assert describe_progress(progress) == words
