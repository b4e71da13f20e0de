"""Each command that the documents show exists, with the flags that it is shown with."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from plnt import cache_command, cli

ROOT = Path(__file__).resolve().parents[2]
BIN = Path(sys.executable).parent
DOCUMENTS = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]


def _commands(tool: str) -> list[list[str]]:
    found: list[list[str]] = []
    for document in DOCUMENTS:
        for block in re.findall(r"```(?:sh|console)\n(.*?)```", document.read_text(), re.DOTALL):
            for line in block.replace("\\\n", " ").splitlines():
                words = shlex.split(line.removeprefix("$ "), comments=True)
                if words and words[0].rsplit("/", 1)[-1] == tool:
                    found.append(words)
    return found


def _verbs(words: list[str]) -> list[str]:
    return [word for word in words[1:] if re.fullmatch(r"[a-z][a-z-]+", word)]


def test_make_targets_that_are_shown_exist() -> None:
    targets = set(re.findall(r"^([a-z0-9]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    shown = {word for words in _commands("make") for word in words[1:] if "=" not in word}
    assert shown
    assert shown <= targets


def test_plnt_commands_that_are_shown_are_understood() -> None:
    commands = _commands("plnt")
    assert commands
    for _, verb, *rest in commands:
        parser, arguments = (
            (cache_command.build_parser(), rest) if verb == "cache" else (cli.build_parser(), [verb, *rest])
        )
        assert arguments[0] in vars(parser.parse_args(arguments)).values()


@pytest.mark.parametrize("words", _commands("temporal"), ids=" ".join)
def test_temporal_command_that_is_shown_has_its_flags(words: list[str]) -> None:
    _check_flags([str(BIN / "temporal"), *_verbs(words)[:2], "--help"], words)


@pytest.mark.parametrize("words", _commands("kubectl"), ids=" ".join)
def test_kubectl_command_that_is_shown_has_its_flags_and_files(words: list[str]) -> None:
    _check_flags([str(BIN / "kubectl"), _verbs(words)[0], "--help"], words)
    for word in words:
        if word.endswith(".yaml") and not word.startswith("/"):
            assert (ROOT / word).exists() or "/" not in word, word


def _check_flags(help_command: list[str], words: list[str]) -> None:
    told = subprocess.run(help_command, check=True, capture_output=True, text=True).stdout
    common = {"-n", "--namespace", "--kubeconfig"}
    for flag in (word.split("=")[0] for word in words if word.startswith("-") and len(word) > 1):
        assert flag in common or re.search(rf"(^|[\s,]){re.escape(flag)}\b", told), f"{flag} of {' '.join(words)}"
