"""The line for one GPU class: strict first in, first out; all pods of an entry get their GPUs at once or none does."""

from collections.abc import Callable

from plnt.model.message import Message
from plnt.model.messages import Capacity, CountFree, Join, LeaseCount, Leave

MOST_DOUBLINGS = 2
"""The pause between two counts grows to four times the poll interval."""

_SHARED = tuple(field for field in LeaseCount.model_fields if field in Join.model_fields)


class Entry(Message):
    """One workflow in the line, by its newest run; granted = it holds a lease."""

    join: Join
    granted: bool = False

    @property
    def needs(self) -> int:
        """GPUs over all pods."""
        return self.join.pods * self.join.gpus_per_pod


class Line(Message):
    """Everybody in the line in order of arrival, holders of leases included; and the last word about free GPUs."""

    gpu_class: str = ""
    poll_seconds: float = 5.0
    entries: list[Entry] = []

    @property
    def leases(self) -> list[Entry]:
        """Who holds a lease."""
        return [entry for entry in self.entries if entry.granted]

    @property
    def waiting(self) -> list[Entry]:
        """Who waits, first in line first."""
        return [entry for entry in self.entries if not entry.granted]

    @property
    def head(self) -> Entry | None:
        """Who is first in line."""
        return next(iter(self.waiting), None)

    def find(self, workflow_id: str) -> Entry | None:
        """Give the entry of a workflow."""
        return next((entry for entry in self.entries if entry.join.workflow_id == workflow_id), None)


def add(line: Line, join: Join) -> Line:
    """Take a join; the same workflow keeps its place, and its lease if it asks for the same again."""
    present = line.find(join.workflow_id)
    if present is None:
        entries = [*line.entries, Entry(join=join)]
    else:
        entry = Entry(join=join, granted=present.granted and _asks_same(present.join, join))
        entries = [entry if old is present else old for old in line.entries]
    return line.model_copy(update={"gpu_class": join.gpu_class, "poll_seconds": join.poll_seconds, "entries": entries})


def _asks_same(one: Join, other: Join) -> bool:
    ignored = {"run_id", "poll_seconds"}
    return one.model_dump(exclude=ignored) == other.model_dump(exclude=ignored)


def leave(line: Line, word: Leave) -> Line:
    """Take out the entry of that very run; the word of an older run changes nothing."""
    return _keep(line, lambda entry: (entry.join.workflow_id, entry.join.run_id) != (word.workflow_id, word.run_id))


def drop(line: Line, runs: list[tuple[str, str]]) -> Line:
    """Take out entries by workflow and run ID: nobody is left to use them."""
    return _keep(line, lambda entry: (entry.join.workflow_id, entry.join.run_id) not in runs)


def _keep(line: Line, wanted: Callable[[Entry], bool]) -> Line:
    return line.model_copy(update={"entries": [entry for entry in line.entries if wanted(entry)]})


def grant(line: Line, run_id: str) -> Line:
    """Give the entry of a run its lease."""
    entries = [
        entry.model_copy(update={"granted": True}) if entry.join.run_id == run_id else entry for entry in line.entries
    ]
    return line.model_copy(update={"entries": entries})


def ask(line: Line) -> CountFree:
    """Give the question for the gpu pool."""
    return CountFree(
        gpu_class=line.gpu_class,
        leases=[_count(entry) for entry in line.leases],
        head=_count(line.head) if line.head else None,
    )


def _count(entry: Entry) -> LeaseCount:
    join = entry.join
    return LeaseCount(namespace=join.ref.namespace, **{name: getattr(join, name) for name in _SHARED})


def closed_runs(question: CountFree, answer: Capacity) -> list[tuple[str, str]]:
    """Give workflow and run ID of those in the question whose run has ended."""
    asked = [*question.leases, *([question.head] if question.head else [])]
    return [(one.workflow_id, one.run_id) for one in asked if one.workflow_id in answer.closed]


def choose_pause(line: Line, unchanged: int) -> float:
    """Give the seconds until the next count, after ``unchanged`` counts that all said what the one before them said.

    A count reads every pod of the cluster, and a full cluster stays full for long.
    """
    return line.poll_seconds * 2.0 ** min(unchanged, MOST_DOUBLINGS)


def describe_places(line: Line, free: int | str) -> dict[str, str]:
    """Give, by run ID, the word for each one who waits; ``free`` is a number, or why there is none."""
    waiting = line.waiting
    return {
        entry.join.run_id: f"place {place} of {len(waiting)}, needs {entry.needs}, free {free}"
        for place, entry in enumerate(waiting, start=1)
    }
