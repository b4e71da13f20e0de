"""Each command that the documents show is run by some test, or is known not to be; all have the flags shown."""

import re
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from plnt import cache_command, cli
from plnt.sandbox.programs import Programs
from tests.docs.shown import BIN, ROOT, Shown, read_shown

SHOWN = read_shown()
INSTALLED, STEERED = "tests/e2e/test_7_in_cluster.py", "tests/e2e/test_7_shown_commands.py"
RUN_BY = {
    r"kubectl (apply -f examples/|wait --for|get workflowrun)": STEERED,
    r"temporal (workflow|schedule) ": STEERED,
    r"temporal activity (pause|unpause) ": "tests/e2e/test_8_chaos_sample.py",
    r"temporal worker deployment set-current-version ": "tests/workflows/test_versioning.py",
    r"plnt cache ": STEERED,
    r"\.venv/bin/plnt (up|status|down)$": STEERED,
    r"kubectl (apply --server-side -f crds/|create namespace plnt-system|label namespace plnt-system)": INSTALLED,
    r"kubectl delete workflowruns --all": INSTALLED,
    r"helm (install plnt deploy/plnt .*--values|test|uninstall) ": INSTALLED,
    r"(cp -a charts|sed -i)": "tests/charts/test_adding_a_runtime.py",
}
"""Commands, and the test that runs them: word for word, or with other names."""
NOT_RUN = {
    r"docker ": "it takes an engine that runs containers",
    r"cp \.env\.example \.env$": "it is for docker compose",
    r"helm install plnt deploy/plnt .*--set": "another form of the command of docs/installation.md",
    r"make ": "the tests are what make runs; `plnt demo` is in tests/e2e/test_0_demo.py",
    r"\.venv/bin/plnt up --metrics": "tests/e2e/test_8_autoscaling.py starts the same servers",
    r"\.venv/bin/pytest ": "the tests themselves",
    r"temporal worker deployment describe-version ": "it only reads",
    r"PLNT_\w+=": "settings",
}
"""Commands of which only the flags and files are checked, and why."""


def _with_tool(tool: str) -> list[Shown]:
    return [shown for shown in SHOWN if shown.tool == tool]


def test_each_shown_command_is_run_by_a_test_or_has_a_reason_not_to_be() -> None:
    patterns = {**RUN_BY, **NOT_RUN}
    matched = {str(shown): [pattern for pattern in patterns if re.match(pattern, str(shown))] for shown in SHOWN}
    assert {command for command, found in matched.items() if len(found) != 1} == set()
    assert {pattern for found in matched.values() for pattern in found} == set(patterns)
    assert all((ROOT / test).exists() for test in RUN_BY.values())


def test_make_targets_that_are_shown_exist() -> None:
    targets = set(re.findall(r"^([a-z0-9]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    shown = {word for shown in _with_tool("make") for word in shown.words[1:] if "=" not in word}
    assert shown
    assert shown <= targets


def test_plnt_commands_that_are_shown_are_understood() -> None:
    commands = _with_tool("plnt")
    assert commands
    for _, verb, *rest in (shown.words for shown in commands):
        parser, arguments = (
            (cache_command.build_parser(), rest) if verb == "cache" else (cli.build_parser(), [verb, *rest])
        )
        assert arguments[0] in vars(parser.parse_args(arguments)).values()


@pytest.mark.parametrize("shown", _with_tool("temporal"), ids=str)
def test_temporal_command_that_is_shown_has_its_flags(shown: Shown) -> None:
    verbs = _verbs(shown)
    _check_flags([str(BIN / "temporal"), *verbs[: 3 if verbs[0] == "worker" else 2], "--help"], shown)


@pytest.mark.parametrize("shown", _with_tool("kubectl"), ids=str)
def test_kubectl_command_that_is_shown_has_its_flags(shown: Shown) -> None:
    _check_flags([str(BIN / "kubectl"), _verbs(shown)[0], "--help"], shown)


def test_helm_commands_that_are_shown_have_their_flags(programs: Programs) -> None:
    for shown in _with_tool("helm"):
        _check_flags([str(programs.helm), _verbs(shown)[0], "--help"], shown)


def test_files_that_commands_name_exist() -> None:
    words = {
        word for shown in SHOWN for word in shown.words if "/" in word and not word.startswith(("/", ".venv", "-"))
    }
    paths = {word for word in words if re.fullmatch(r"(charts|crds|deploy|examples|tests)/[\w./-]+", word)}
    assert {path for path in paths if not (ROOT / path).exists()} == {
        "charts/llama-cpp-runtime",
        "charts/llama-cpp-runtime/values.yaml",
    }


def test_links_between_documents_lead_somewhere() -> None:
    for document in {Path(shown.document) for shown in SHOWN} | {Path("docs/architecture.md"), Path("docs/weights.md")}:
        for link in re.findall(r"\]\(([^)#\s]+)(?:#[\w-]+)?\)", (ROOT / document).read_text()):
            if not link.startswith("http"):
                assert (ROOT / document.parent / link).exists(), f"{document}: {link}"


def test_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text().splitlines()) <= 140


def _verbs(shown: Shown) -> list[str]:
    return [word for word in shown.words[1:] if re.fullmatch(r"[a-z][a-z-]+", word)]


def _check_flags(help_command: Sequence[str], shown: Shown) -> None:
    told = subprocess.run(help_command, check=True, capture_output=True, text=True).stdout
    common = {"-n", "--namespace", "--kubeconfig"}
    for flag in (word.split("=")[0] for word in shown.words if word.startswith("-") and len(word) > 1):
        assert flag in common or re.search(rf"(^|[\s,]){re.escape(flag)}\b", told), f"{flag} of {shown}"
