"""The line's pure rules."""

from plnt.model import line as lines
from plnt.model.desired import Ref
from plnt.model.line import Line
from plnt.model.messages import Capacity, Join, Leave


def join(owner: str, run: str = "run-1", *, pods: int = 1) -> Join:
    return Join(
        ref=Ref(namespace="default", name=owner),
        workflow_id=owner,
        run_id=run,
        uid="uid",
        release=f"{owner}-0ddba11e",
        gpu_class="nvidia.com/h100",
        resource_name="nvidia.com/h100",
        pods=pods,
        gpus_per_pod=2,
        poll_seconds=1,
    )


def line_of(*joins: Join) -> Line:
    line = Line()
    for one in joins:
        line = lines.add(line, one)
    return line


def test_later_join_of_the_same_workflow_keeps_its_place_by_the_new_run() -> None:
    line = line_of(join("a"), join("b"), join("a", "run-2"))
    assert [(e.join.workflow_id, e.join.run_id) for e in line.waiting] == [("a", "run-2"), ("b", "run-1")]


def test_equal_join_of_a_newer_run_keeps_the_lease() -> None:
    line = lines.add(lines.grant(line_of(join("a")), "run-1"), join("a", "run-2"))
    assert [entry.join.run_id for entry in line.leases] == ["run-2"]


def test_larger_join_of_a_newer_run_waits_again() -> None:
    line = lines.add(lines.grant(line_of(join("a")), "run-1"), join("a", "run-2", pods=4))
    assert line.leases == []
    assert line.head is not None


def test_leave_of_an_older_run_changes_nothing() -> None:
    line = line_of(join("a", "run-2"))
    assert lines.leave(line, Leave(workflow_id="a", run_id="run-1", gpu_class="nvidia.com/h100")) == line


def test_question_holds_leases_and_the_head_alone() -> None:
    question = lines.ask(lines.grant(line_of(join("a", "run-a"), join("b", "run-b"), join("c", "run-c")), "run-a"))
    assert [lease.workflow_id for lease in question.leases] == ["a"]
    assert question.head is not None
    assert question.head.workflow_id == "b"


def test_closed_runs_are_those_that_were_asked_about() -> None:
    question = lines.ask(line_of(join("a"), join("b")))
    answer = Capacity(bound={}, closed=["a", "b"], free=0, head_fits=False)
    assert lines.closed_runs(question, answer) == [("a", "run-1")]


def test_place_counts_those_who_wait_and_not_the_holders() -> None:
    line = lines.grant(line_of(join("a", "run-a"), join("b", "run-b"), join("c", "run-c", pods=2)), "run-a")
    assert lines.describe_places(line, free=3) == {
        "run-b": "place 1 of 2, needs 2, free 3",
        "run-c": "place 2 of 2, needs 4, free 3",
    }


def test_pause_between_counts_grows_to_a_bound_while_nothing_changes() -> None:
    line = line_of(join("a"))
    assert [lines.choose_pause(line, unchanged) for unchanged in (0, 1, 2, 3, 100_000)] == [1, 2, 4, 4, 4]
