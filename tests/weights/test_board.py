"""What the threads of one pull share."""

from concurrent.futures import Future

from plnt.clients.weights.board import Board, Job
from plnt.clients.weights.cache import Cache
from plnt.clients.weights.source import Link
from plnt.model.pull_plan import PlannedFile


def make_job(cache: Cache, name: str) -> Job:
    def make_link(_: PlannedFile) -> "Future[Link]":
        return Future()

    return Job(PlannedFile(path=name, size=8, validator="1"), cache.open_partial(name, 8), make_link)


def test_file_that_is_closed_is_not_hashed_again_when_word_of_its_bytes_comes_late(cache: Cache) -> None:
    first, second = make_job(cache, "first"), make_job(cache, "second")
    board = Board([first, second], part_bytes=8)
    board.offer_to_hash(first)
    assert board.take_to_hash() is first
    board.close_file(first)
    board.offer_to_hash(first)
    board.offer_to_hash(second)
    assert board.take_to_hash() is second
    assert not board.stop.is_set()
    for job in (first, second):
        job.partial.close()
