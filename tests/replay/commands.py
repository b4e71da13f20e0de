"""The commands that each workflow function gives, in the order of its source: a fingerprint for reviewers.

A workflow's history is the list of commands that its code gave. Code that gives others for the same history cannot
go on with it, so the order of these calls is a promise to every run that is open during an upgrade.
"""

import ast
from pathlib import Path

FOLDER = Path(__file__).parents[2] / "workflows"
BASELINE = Path(__file__).parent / "commands.json"
UNAWAITED = frozenset(
    {"continue_as_new", "create_task", "deprecate_patch", "enter", "patched", "post", "report", "upsert_memo"}
    | {"upsert_search_attributes"}
)
"""Calls that give a command, or start what gives some, without being awaited."""

Fingerprint = dict[str, dict[str, list[str]]]
"""Module -> function -> commands."""


def read_commands() -> Fingerprint:
    """Read the commands of all workflow code."""
    modules = sorted(path for path in FOLDER.glob("*.py") if not path.name.startswith("__"))
    return {path.stem: _read_functions(ast.parse(path.read_text())) for path in modules}


def _read_functions(tree: ast.Module) -> dict[str, list[str]]:
    found = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and (commands := _read_calls(node)):
            found[node.name] = commands
    return dict(sorted(found.items()))


def _read_calls(function: ast.FunctionDef | ast.AsyncFunctionDef) -> list[str]:
    calls = []
    for node in ast.walk(function):
        awaited = isinstance(node, ast.Await)
        call = node.value if isinstance(node, ast.Await) else node
        if isinstance(call, ast.Call) and (awaited or _name(call) in UNAWAITED):
            calls.append((call.lineno, call.col_offset, _describe(call)))
    return [text for _, _, text in dict.fromkeys(sorted(calls))]


def _name(call: ast.Call) -> str:
    return call.func.attr if isinstance(call.func, ast.Attribute) else ast.unparse(call.func)


def _describe(call: ast.Call) -> str:
    step = next((ast.unparse(arg) for arg in call.args if isinstance(arg, ast.Name) and arg.id.isupper()), "")
    return f"{_name(call)} {step}".strip()
