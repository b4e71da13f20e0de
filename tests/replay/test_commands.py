"""The order of commands in workflow code changes only on purpose."""

import json

from tests.replay.commands import BASELINE, Fingerprint, read_commands

ADVICE = """
The commands that workflow code gives have changed:

{changes}

A run that is open during the upgrade replays its history with this code, and stops for good ("Nondeterminism error",
search attribute TemporalReportedProblems) where the code gives another command than the one in its history.

* If a released version gives the old commands: keep both. `if workflow.patched("what-changed"):` the new ones, `else:`
  the old ones; `workflow.deprecate_patch("what-changed")` once no run from before is open. tests/replay/test_replay.py
  must still pass with the histories as they were recorded.
* If nothing that was released gives the old ones, or if only the form of the code changed and test_replay.py passes:
  nothing to keep.

Then run `make record`, which writes this baseline and the histories anew, and say so in CHANGELOG.md.
"""


def test_order_of_commands_is_the_recorded_one() -> None:
    recorded: Fingerprint = json.loads(BASELINE.read_text())
    changes = "\n".join(describe_changes(recorded, read_commands()))
    assert not changes, ADVICE.format(changes=changes)


def describe_changes(before: Fingerprint, after: Fingerprint) -> list[str]:
    lines = []
    for module in sorted({*before, *after}):
        old, new = before.get(module, {}), after.get(module, {})
        for function in sorted({*old, *new}):
            if old.get(function) != new.get(function):
                lines.append(f"workflows/{module}.py {function}")
                lines += [f"  recorded: {', '.join(old.get(function, ['nothing']))}"]
                lines += [f"  now:      {', '.join(new.get(function, ['nothing']))}"]
    return lines


def test_changed_command_is_told_with_its_function() -> None:
    before: Fingerprint = {"rollout": {"roll_out": ["deploy", "promote"]}}
    after: Fingerprint = {"rollout": {"roll_out": ["deploy", "smoke_test", "promote"]}}
    assert describe_changes(before, after) == [
        "workflows/rollout.py roll_out",
        "  recorded: deploy, promote",
        "  now:      deploy, smoke_test, promote",
    ]


def test_fingerprint_sees_steps_in_their_order() -> None:
    promoting = read_commands()["promoting"]
    assert promoting["cross_over"] == ["commit SET_WEIGHTS"]
    assert promoting["promote"][0] == "enter"
