"""In which pieces files are fetched, and over how many connections."""

from concurrent.futures import Future
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plnt.clients.weights.job import Job
from plnt.clients.weights.partial import Partial
from plnt.clients.weights.parts import LANES, MAX_PART_BYTES, MIN_PART_BYTES, SMALL_BYTES, Parts, cut_part
from plnt.clients.weights.ramp import FIRST, RETRY_SECONDS, WINDOW_BYTES, WINDOW_SECONDS, Ramp
from plnt.clients.weights.source import Link
from plnt.model.pull_plan import PlannedFile

MIB = 1 << 20
CAP = 90e6
"""Bytes per second of one connection to a large object store."""


def make_job(folder: Path, name: str, size: int, there: tuple[tuple[int, int], ...] = ()) -> Job:
    def make_link(_: PlannedFile) -> "Future[Link]":
        return Future()

    partial = Partial(folder, name, size)
    for first, end in there:
        partial.note(first, end)
    return Job(PlannedFile(path=name, size=size, validator="1"), partial, make_link)


def take_all(jobs: list[Job], connections: int) -> list[tuple[str, int, int]]:
    parts = Parts(jobs)
    taken = []
    while parts:
        part = parts.take(connections)
        taken.append((part.job.file.path, part.at, part.end))
    for job in jobs:
        job.partial.close()
    return taken


@given(
    sizes=st.lists(st.integers(1, 400 * MIB), min_size=1, max_size=6),
    there=st.tuples(st.integers(0, 200 * MIB), st.integers(0, 200 * MIB)),
    connections=st.integers(1, 64),
)
def test_parts_cover_what_is_missing_once_and_in_order(
    sizes: list[int], there: tuple[int, int], connections: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("parts")
    first, end = min(there[0], sizes[0]), min(sum(there), sizes[0])
    jobs = [make_job(folder, f"{n}", size, ((first, end),) if not n else ()) for n, size in enumerate(sizes)]
    gaps = {job.file.path: job.partial.gaps() for job in jobs}
    taken = take_all(jobs, connections)
    for name, missing in gaps.items():
        joined: list[tuple[int, int]] = []
        for _, at, until in (one for one in taken if one[0] == name):
            if joined and joined[-1][1] == at:
                joined[-1] = (joined[-1][0], until)
            else:
                joined.append((at, until))
        assert joined == missing


def test_small_files_go_first_and_whole(tmp_path: Path) -> None:
    jobs = [make_job(tmp_path, "weights", 100 * MIB), make_job(tmp_path, "config", SMALL_BYTES)]
    assert take_all(jobs, 4)[0] == ("config", 0, SMALL_BYTES)


def test_parts_shrink_to_the_end_so_that_no_connection_waits_long_for_another(tmp_path: Path) -> None:
    jobs = [make_job(tmp_path, f"{n}", 512 * MIB) for n in range(4)]
    sizes = [end - at for _, at, end in take_all(jobs, 8)]
    assert sizes[0] == MAX_PART_BYTES
    assert max(sizes[-8:]) == MIN_PART_BYTES


def test_files_are_fetched_side_by_side(tmp_path: Path) -> None:
    jobs = [make_job(tmp_path, f"{n}", 512 * MIB) for n in range(6)]
    assert len({name for name, _, _ in take_all(jobs, 4)[:LANES]}) == LANES


@given(first=st.integers(0, 1 << 40), length=st.integers(1, 1 << 40), wanted=st.integers(0, 1 << 40))
def test_part_is_never_empty_and_ends_where_stores_cut_or_the_gap_ends(first: int, length: int, wanted: int) -> None:
    end = cut_part(first, first + length, wanted)
    assert first < end <= first + length
    assert end == first + length or end % MIN_PART_BYTES == 0
    assert end - first <= MAX_PART_BYTES


def run_ramp(ramp: Ramp, seconds: float, capacity: float, cap: float, start: float = 0.0) -> float:
    """Move bytes as a link of ``capacity`` with ``cap`` per connection would; gives when the width was last changed."""
    moved, changed, now = start * capacity, start, start
    while now < start + seconds:
        now += 0.05
        width = ramp.width
        moved += min(capacity, cap * width) * 0.05
        if ramp.look(round(moved), now) != width:
            changed = now
    return changed


def test_ramp_opens_all_connections_within_a_second_when_each_is_capped() -> None:
    ramp = Ramp(16, 0.0)
    assert ramp.width == FIRST
    assert run_ramp(ramp, 3.0, capacity=10e9, cap=CAP) < 1.0
    assert ramp.width == 16


def test_ramp_stays_with_few_connections_when_more_bring_nothing() -> None:
    ramp = Ramp(16, 0.0)
    run_ramp(ramp, RETRY_SECONDS / 2, capacity=4 * CAP, cap=CAP)
    assert ramp.width == FIRST


def test_ramp_tries_more_again_after_a_while() -> None:
    ramp = Ramp(16, 0.0)
    run_ramp(ramp, 5.0, capacity=4 * CAP, cap=CAP)
    run_ramp(ramp, RETRY_SECONDS + 3 * WINDOW_SECONDS, capacity=1e9, cap=CAP, start=5.0)
    assert ramp.width > FIRST


def test_ramp_opens_more_connections_when_those_there_hang() -> None:
    ramp = Ramp(16, 0.0)
    run_ramp(ramp, 4 * WINDOW_SECONDS, capacity=0.0, cap=0.0)
    assert ramp.width == 16


def test_ramp_never_exceeds_its_limit() -> None:
    ramp = Ramp(3, 0.0)
    assert ramp.look(3 * WINDOW_BYTES, 1.0) == 3
