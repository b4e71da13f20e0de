"""Writes a table of ``flags/`` anew from an installed engine: ``python -m plnt.sandbox.engine.read_flags ENGINE``.

Run it with a Python that has the engine's wheel (``pip install vllm`` or ``sglang``); no GPU is needed. TGI and
trtllm-serve come as images alone: their tables are kept by hand.
"""

import argparse
import sys
from collections.abc import Callable, Iterator, Mapping
from importlib import import_module
from importlib.metadata import version
from pathlib import Path

FOLDER = Path(__file__).parent / "flags"
HEADER = "flag\taction\tnargs\tchoices"


def list_rows(parser: argparse.ArgumentParser) -> Iterator[str]:
    """Give the row of every option string and positional of a parser."""
    for action in parser._actions:  # noqa: SLF001 - argparse shows its actions in no other way
        choices = "|".join(map(str, action.choices)) if action.choices else ""
        kind = type(action).__name__
        if not action.option_strings:
            yield f"POS\t{action.dest}\t{action.nargs}\t{choices}"
        for flag in action.option_strings:
            yield f"{flag}\t{kind}\t{action.nargs}\t{choices}"


def render_table(parser: argparse.ArgumentParser) -> str:
    """Give the table of a parser."""
    return "\n".join([HEADER, *list_rows(parser)]) + "\n"


def _build_vllm() -> argparse.ArgumentParser:
    cli_args = import_module("vllm.entrypoints.openai.cli_args")
    parser = import_module("vllm.utils.argparse_utils").FlexibleArgumentParser(prog="vllm serve")
    return cli_args.make_arg_parser(parser)  # type: ignore[no-any-return]


def _build_sglang() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="launch_server.py")
    import_module("sglang.srt.server_args").ServerArgs.add_cli_args(parser)
    return parser


_PARSERS: Mapping[str, Callable[[], argparse.ArgumentParser]] = {"vllm": _build_vllm, "sglang": _build_sglang}


def main(engine: str) -> int:
    """Write the table of ``engine``; the file is named after the installed version."""
    try:
        table = render_table(_PARSERS[engine]())
        path = FOLDER / f"{engine}-{version(engine)}.tsv"
    except (KeyError, ImportError) as error:
        print(f"{engine}: {error}: run this with a Python that has vllm or sglang installed", file=sys.stderr)
        return 2
    path.write_text(table)
    print(f"{path}: {table.count(chr(10)) - 1} options; name it in command_line.py")
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
