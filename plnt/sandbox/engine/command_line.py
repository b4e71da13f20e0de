"""Which engine a command starts, and its options, refused as the real engine refuses them.

The tables in ``flags/`` hold every option of one version of each engine; the columns are those of argparse.
"""

import argparse
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from importlib.resources import files
from pathlib import PurePath
from typing import NoReturn


class Engine(StrEnum):
    """The engines that the stub can play."""

    VLLM = "vllm"
    SGLANG = "sglang"
    TGI = "tgi"
    TRTLLM = "trtllm"


class UsageInvalid(Exception):
    """The command line is not one of this engine; the text is what the engine prints before it exits 2."""


@dataclass(frozen=True, slots=True)
class CommandLine:
    """An accepted command line: values by flag, a switch has none; positional arguments in order."""

    engine: Engine
    options: Mapping[str, tuple[str, ...]]
    positionals: tuple[str, ...]

    def find(self, *flags: str) -> str | None:
        """Give the first value of the first of the synonymous ``flags`` that was given."""
        for flag in flags:
            if self.options.get(flag):
                return self.options[flag][0]
        return None

    def has(self, flag: str) -> bool:
        """Tell whether the switch ``flag`` was given."""
        return flag in self.options


@dataclass(frozen=True, slots=True)
class _Row:
    flag: str
    action: str
    nargs: str
    choices: tuple[str, ...]
    variable: str


TABLES = {
    Engine.VLLM: "vllm-0.33.0.tsv",
    Engine.SGLANG: "sglang-0.5.23.tsv",
    Engine.TGI: "tgi-3.3.7.tsv",
    Engine.TRTLLM: "trtllm-serve-1.3.tsv",
}
"""Files of ``flags/``, one a version of an engine."""
_PROGRAMS = {
    Engine.VLLM: "vllm serve",
    Engine.SGLANG: "launch_server.py",
    Engine.TGI: "text-generation-launcher",
    Engine.TRTLLM: "trtllm-serve serve",
}
_PYTHON = re.compile(r"python(3(\.\d+)?)?")


def recognise(command: Sequence[str]) -> tuple[Engine, list[str]] | None:
    """Tell which engine ``command`` starts and with which arguments; none when it starts no engine."""
    words = [PurePath(command[0]).name, *command[1:]] if command else []
    match words:
        case ["vllm", "serve", *rest]:
            return Engine.VLLM, rest
        case [python, "-m", "sglang.launch_server", *rest] if _PYTHON.fullmatch(python):
            return Engine.SGLANG, rest
        case ["sglang", "serve", *rest]:
            return Engine.SGLANG, rest
        case ["text-generation-launcher", *rest]:
            return Engine.TGI, rest
        case ["trtllm-serve", "serve", *rest] | ["trtllm-serve", *rest]:
            return Engine.TRTLLM, rest
        case _:
            return None


def parse_options(engine: Engine, arguments: Sequence[str], environ: Mapping[str, str]) -> CommandLine:
    """Read ``arguments``, and for TGI the variables that stand for flags.

    Raises:
        UsageInvalid: the engine has no such flag, or not with such a value.
        SystemExit: help was asked for and printed.
    """
    rows = _read_table(engine)
    parser = _build_parser(engine, rows)
    given = [_normalise_flag(word, rows) for word in arguments] if engine is Engine.VLLM else list(arguments)
    parsed = vars(parser.parse_args([*_words_from(environ, rows, given), *given]))
    options = {flag: _as_values(value) for flag, value in parsed.items() if flag.startswith("-") and value is not None}
    positionals = [str(value) for name, value in parsed.items() if not name.startswith("-") and value is not None]
    return CommandLine(engine, options, tuple(positionals))


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise UsageInvalid(f"usage: {self.prog} [options]\n{self.prog}: error: {message}")


@cache
def _read_table(engine: Engine) -> tuple[_Row, ...]:
    text = (files("plnt.sandbox.engine") / "flags" / TABLES[engine]).read_text()
    rows = []
    for line in text.splitlines()[1:]:
        flag, action, nargs, choices, variable = (*line.split("\t"), "", "")[:5]
        rows.append(_Row(flag, action, nargs, tuple(choices.split("|")) if choices else (), variable))
    return tuple(rows)


def _build_parser(engine: Engine, rows: Sequence[_Row]) -> argparse.ArgumentParser:
    abbreviates = engine in {Engine.VLLM, Engine.SGLANG}
    parser = _Parser(prog=_PROGRAMS[engine], add_help=False, allow_abbrev=abbreviates)
    for row in rows:
        if row.action == "_HelpAction":
            parser.add_argument(row.flag, action="help")
        elif row.flag == "POS":
            parser.add_argument(row.action, nargs=None if row.nargs == "None" else row.nargs)
        elif row.nargs == "0":
            parser.add_argument(row.flag, dest=row.flag, action="store_const", const=())
        else:
            nargs = None if row.nargs == "None" else row.nargs
            parser.add_argument(row.flag, dest=row.flag, nargs=nargs, choices=row.choices or None)
    return parser


def _normalise_flag(word: str, rows: Sequence[_Row]) -> str:
    """Spell a vLLM flag as its table does: ``_`` is ``-``; ``--a.b`` sets a part of the JSON value of ``--a``."""
    if not word.startswith("--"):
        return word
    name, equals, value = word.partition("=")
    name = name.replace("_", "-")
    base = name.partition(".")[0]
    if base != name and any(row.flag == base for row in rows):
        return base + equals + value
    return name + equals + value


def _words_from(environ: Mapping[str, str], rows: Sequence[_Row], given: Sequence[str]) -> list[str]:
    """Turn the variables that stand for flags into words; a flag on the command line wins."""
    named = {word.partition("=")[0] for word in given}
    words: list[str] = []
    for row in rows:
        value = environ.get(row.variable, "") if row.variable else ""
        if not value or row.flag in named:
            continue
        if row.nargs != "0":
            words.append(f"{row.flag}={value}")
        elif value.lower() in {"1", "true"}:
            words.append(row.flag)
    return words


def _as_values(value: object) -> tuple[str, ...]:
    return tuple(map(str, value)) if isinstance(value, list | tuple) else (str(value),)
