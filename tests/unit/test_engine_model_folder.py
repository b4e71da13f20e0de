"""What a stub engine asks of a model folder and of its ``stub.json``."""

from collections.abc import Callable
from pathlib import Path

import pytest

from plnt.sandbox.engine.behaviour import Behaviour, BehaviourInvalid, parse_behaviour, read_behaviour
from plnt.sandbox.engine.model_folder import ModelInvalid, check_folder, check_quantization
from tests.fakes.model_folder import write_model

SHARD = "model-00002-of-00002.safetensors"


def test_genuine_folder_is_accepted(tmp_path: Path) -> None:
    assert check_folder(write_model(tmp_path))["max_position_embeddings"] == 4096


@pytest.mark.parametrize(
    ("damage", "named"),
    [
        (lambda folder: (folder / "config.json").unlink(), "config.json"),
        (lambda folder: (folder / "config.json").write_text("{"), "config.json"),
        (lambda folder: (folder / "tokenizer.json").unlink(), "tokenizer"),
        (lambda folder: (folder / SHARD).unlink(), SHARD),
        (lambda folder: (folder / SHARD).write_bytes((folder / SHARD).read_bytes()[:-1]), "not fully covered"),
        (lambda folder: (folder / SHARD).write_bytes(b"<html>not found</html>"), "deserializing header"),
        (
            lambda folder: (folder / SHARD).write_bytes((folder / SHARD.replace("2-", "1-", 1)).read_bytes()),
            "lacks tensor",
        ),
    ],
    ids=["no config", "cut config", "no tokenizer", "missing shard", "cut shard", "page as shard", "wrong shard"],
)
def test_damaged_folder_is_refused_by_the_files_name(
    tmp_path: Path, damage: Callable[[Path], object], named: str
) -> None:
    damage(write_model(tmp_path))
    with pytest.raises(ModelInvalid, match=named):
        check_folder(tmp_path)


def test_folder_that_is_missing_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelInvalid, match="no folder"):
        check_folder(tmp_path / "nowhere")


def test_quantization_flag_must_agree_with_the_checkpoint() -> None:
    config = {"quantization_config": {"quant_method": "awq"}}
    check_quantization(config, None)
    check_quantization(config, "awq_marlin")
    with pytest.raises(ModelInvalid, match="does not match"):
        check_quantization(config, "fp8")


def test_behaviour_comes_from_the_folder(tmp_path: Path) -> None:
    write_model(tmp_path, ttftMs=400, faults={"http500Every": 3, "errorInBand": True})
    behaviour = read_behaviour(tmp_path)
    assert (behaviour.ttft_ms, behaviour.faults.http_500_every, behaviour.faults.error_in_band) == (400, 3, True)


def test_behaviour_has_defaults_without_a_file(tmp_path: Path) -> None:
    assert read_behaviour(tmp_path) == Behaviour()


def test_misspelled_fault_is_refused() -> None:
    with pytest.raises(BehaviourInvalid, match="crashAfterRequest'"):
        parse_behaviour({"faults": {"crashAfterRequest": 3}})
