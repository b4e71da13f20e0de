"""The commands that the documents show, as a reader types them."""

import re
import shlex
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.command_line import run_command

ROOT = Path(__file__).resolve().parents[2]
BIN = Path(sys.executable).parent
DOCUMENTS = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "deploy/plnt/README.md")),
    *sorted((ROOT / "docs").rglob("*.md")),
]


@dataclass(frozen=True)
class Shown:
    """A command in a document, without prompt and comment."""

    document: str
    words: tuple[str, ...]

    @property
    def tool(self) -> str:
        """Name of the program."""
        return self.words[0].rsplit("/", 1)[-1]

    def __str__(self) -> str:
        return " ".join(self.words)


def read_shown() -> list[Shown]:
    """Read all commands; in a console block the lines without a prompt are output."""
    found: list[Shown] = []
    for document in DOCUMENTS:
        for form, block in re.findall(r"```(sh|console)\n(.*?)```", document.read_text(), re.DOTALL):
            for line in block.replace("\\\n", " ").splitlines():
                if form == "sh" or line.startswith("$ "):
                    words = tuple(shlex.split(line.removeprefix("$ "), comments=True))
                    found += [Shown(str(document.relative_to(ROOT)), words)] if words else []
    return found


def pick(document: str, start: str) -> Shown:
    """Give the one command of a document that is this, or else begins like it."""
    commands = list(dict.fromkeys(one for one in read_shown() if one.document == document))
    exact = [one for one in commands if str(one) == start]
    (command,) = exact or [one for one in commands if str(one).startswith(start)]
    return command


async def type_command(
    shown: Shown, stand_ins: Mapping[str, str], environment: Mapping[str, str], folder: Path = ROOT
) -> str:
    """Run a command word for word, but for the names that it leaves open; gives its output."""
    words = [_fill(word, stand_ins) for word in shown.words]
    words[0] = str(BIN / shown.tool) if shown.tool == "plnt" else words[0]
    return await run_command(words, environment, folder=folder)


def _fill(word: str, stand_ins: Mapping[str, str]) -> str:
    for name, text in stand_ins.items():
        word = re.sub(rf"\b{name}\b", text, word)
    return word
