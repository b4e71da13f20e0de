"""Tables of flags as they are read from an engine's own parser, with what the engine requires not installed."""

import argparse
import os
import subprocess
import sys
from pathlib import Path

import pytest

from plnt.sandbox.engine.command_line import TABLES, Engine
from plnt.sandbox.engine.read_flags import FOLDER, HEADER, list_requirements, main, render_table

ENGINE = '''
import argparse
import importlib.util
from abc import ABC

import torch
import torch.nn.functional as F
from torch import nn
from transformers import AutoConfig

try:
    import torch_npu
    DEVICES = ["npu"]
except ImportError:
    DEVICES = ["cuda"] + (["npu"] if hasattr(torch, "npu") else [])


class Operator(nn.Module, ABC):
    """A class as engines derive them."""

    scale = 2 * torch.pi + int(torch.distributed.ReduceOp.SUM)

    @torch.no_grad()
    def forward(self, x: torch.Tensor) -> "torch.Tensor | None":
        return F.relu(x)


class ServerArgs:
    """The part that is read."""

    @staticmethod
    def add_cli_args(parser: argparse.ArgumentParser) -> None:
        parser.add_argument("--device", choices=DEVICES)
        parser.add_argument("--layers", choices=[name for name in ("Operator",) if Operator()])
'''
"""An engine that imports torch and a library built on it, and asks where it runs."""


def test_every_option_string_and_positional_has_its_row() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("model")
    parser.add_argument("--dtype", "-d", choices=["auto", "half"])
    parser.add_argument("--backend", choices={"b", "c", "a"})
    parser.add_argument("--served-model-name", nargs="+")
    parser.add_argument("--fast", action="store_true")
    assert render_table(parser).splitlines() == [
        "flag\taction\tnargs\tchoices",
        "-h\t_HelpAction\t0\t",
        "--help\t_HelpAction\t0\t",
        "POS\tmodel\tNone\t",
        "--dtype\t_StoreAction\tNone\tauto|half",
        "-d\t_StoreAction\tNone\tauto|half",
        "--backend\t_StoreAction\tNone\ta|b|c",
        "--served-model-name\t_StoreAction\t+\t",
        "--fast\t_StoreTrueAction\t0\t",
    ]


def install_engine(folder: Path, text: str) -> None:
    """Unpack what looks like SGLang's wheel, version 9.9."""
    for package in ("sglang", "sglang/srt"):
        (folder / package).mkdir()
        (folder / package / "__init__.py").touch()
    (folder / "sglang/srt/server_args.py").write_text(text)
    (folder / "sglang-9.9.dist-info").mkdir()
    (folder / "sglang-9.9.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: sglang\nVersion: 9.9\n")


def read_installed(folder: Path) -> subprocess.CompletedProcess[str]:
    """Read SGLang's options in a Python that finds it in ``folder``."""
    command = [sys.executable, "-m", "plnt.sandbox.engine.read_flags", "--installed", "sglang", "--folder", str(folder)]
    path = os.pathsep.join([str(folder), str(Path(__file__).parents[2])])
    return subprocess.run(
        command, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True, check=False, timeout=60
    )


def test_options_are_read_without_the_libraries_that_the_engine_requires(tmp_path: Path) -> None:
    install_engine(tmp_path, ENGINE)
    done = read_installed(tmp_path)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "sglang-9.9.tsv").read_text().splitlines()[1:] == [
        "-h\t_HelpAction\t0\t",
        "--help\t_HelpAction\t0\t",
        "--device\t_StoreAction\tNone\tcuda",
        "--layers\t_StoreAction\tNone\tOperator",
    ]


def test_engine_whose_parser_moved_is_named_and_its_table_stays(tmp_path: Path) -> None:
    install_engine(tmp_path, "")
    (tmp_path / "sglang/srt/server_args.py").unlink()
    kept = tmp_path / "sglang-9.9.tsv"
    kept.write_text("kept")
    done = read_installed(tmp_path)
    assert (done.returncode, kept.read_text()) == (2, "kept")
    assert done.stderr.startswith("sglang: ")


def test_engine_that_is_not_installed_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--installed", "vllm"]) == 2
    assert "vllm" in capsys.readouterr().err


def test_wheels_are_those_whose_options_the_stub_engine_takes() -> None:
    assert list_requirements() == ["vllm==0.33.0", "sglang==0.5.23"]
    for engine in Engine:
        assert (FOLDER / TABLES[engine]).read_text().startswith(HEADER)
