"""Tables of flags as they are read from an engine's own parser."""

import argparse

import pytest

from plnt.sandbox.engine.read_flags import main, render_table


def test_every_option_string_and_positional_has_its_row() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("model")
    parser.add_argument("--dtype", "-d", choices=["auto", "half"])
    parser.add_argument("--served-model-name", nargs="+")
    parser.add_argument("--fast", action="store_true")
    assert render_table(parser).splitlines() == [
        "flag\taction\tnargs\tchoices",
        "-h\t_HelpAction\t0\t",
        "--help\t_HelpAction\t0\t",
        "POS\tmodel\tNone\t",
        "--dtype\t_StoreAction\tNone\tauto|half",
        "-d\t_StoreAction\tNone\tauto|half",
        "--served-model-name\t_StoreAction\t+\t",
        "--fast\t_StoreTrueAction\t0\t",
    ]


@pytest.mark.parametrize("engine", ["vllm", "tgi"])
def test_engine_that_is_not_installed_is_named(engine: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(engine) == 2
    assert engine in capsys.readouterr().err
