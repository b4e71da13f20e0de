"""What the threads of one pull share."""

from concurrent.futures import Future, ThreadPoolExecutor
from hashlib import sha256

import pytest

from plnt.clients.weights.board import Board
from plnt.clients.weights.cache import Cache
from plnt.clients.weights.job import Job
from plnt.clients.weights.source import Link
from plnt.model.pull_plan import PlannedFile


def make_job(cache: Cache, name: str) -> Job:
    def make_link(_: PlannedFile) -> "Future[Link]":
        return Future()

    return Job(PlannedFile(path=name, size=8, validator="1"), cache.open_partial(name, 8), make_link)


def test_file_that_is_closed_is_not_hashed_again_when_word_of_its_bytes_comes_late(cache: Cache) -> None:
    first, second = make_job(cache, "first"), make_job(cache, "second")
    board = Board([first, second], width=2)
    board.offer_to_hash(first)
    assert board.take_to_hash() is first
    board.close_file(first)
    board.offer_to_hash(first)
    board.offer_to_hash(second)
    assert board.take_to_hash() is second
    assert not board.stop.is_set()
    for job in (first, second):
        job.partial.close()


def test_bytes_in_order_are_hashed_by_the_thread_that_receives_them(cache: Cache) -> None:
    job = make_job(cache, "first")
    board = Board([job], width=2)
    assert not board.claim_hash(job, job.partial, 4)
    assert board.claim_hash(job, job.partial, 0)
    assert not board.claim_hash(job, job.partial, 0), "two threads would hash the same bytes"
    board.offer_to_hash(job)
    job.hash(memoryview(b"12345678"))
    board.yield_hash(job)
    assert board.take_to_hash() is job
    assert job.read_sums() == (sha256(b"12345678").hexdigest(), "")
    job.partial.close()


def test_bytes_of_a_partial_that_was_thrown_away_are_not_hashed(cache: Cache) -> None:
    job = make_job(cache, "first")
    board = Board([job], width=2)
    old = job.partial
    job.restart(cache.open_partial("second", 8))
    assert not board.claim_hash(job, old, 0)
    assert board.claim_hash(job, job.partial, 0)
    for partial in (old, job.partial):
        partial.close()


def test_connections_beyond_the_width_get_no_part_until_it_grows(cache: Cache) -> None:
    jobs = [make_job(cache, name) for name in ("first", "second")]
    board = Board(jobs, width=1)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(board.take_part, 1)
        with pytest.raises(TimeoutError):
            waiting.result(0.5)
        board.widen(2)
        part = waiting.result(60)
        assert part is not None
    for job in jobs:
        job.partial.close()
