"""One pull at a time, and no dead one in the way."""

import errno
import json
import os
from pathlib import Path

import pytest

from plnt.clients.weights import claim as claim_module
from plnt.clients.weights.claim import Claim
from plnt.model.pull_progress import PullProgress


@pytest.fixture
def path(tmp_path: Path) -> Path:
    (tmp_path / "tmp").mkdir()
    return tmp_path / "plan.claim"


def make(path: Path) -> Claim:
    return Claim(path, path.parent / "tmp")


def rewrite(path: Path, **process: object) -> None:
    facts = json.loads(path.read_text())
    facts["process"].update(process)
    path.write_text(json.dumps(facts))


def test_second_claim_waits_until_the_first_is_released(path: Path) -> None:
    first, second = make(path), make(path)
    assert first.try_take()
    assert not second.try_take()
    first.release()
    assert second.try_take()


def test_claim_of_a_dead_process_of_this_node_is_taken_at_once(path: Path) -> None:
    assert make(path).try_take()
    rewrite(path, pid=os.getpid(), started="1")
    assert make(path).try_take()


def test_silent_claim_of_another_node_is_taken_over_after_its_time(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert make(path).try_take()
    rewrite(path, boot="another")
    other = make(path)
    assert not other.try_take()
    monkeypatch.setattr(claim_module, "EXPIRE_SECONDS", -1.0)
    assert other.try_take()


def test_renewed_claim_shows_how_far_its_holder_is(path: Path) -> None:
    holder = make(path)
    assert holder.try_take()
    holder.renew(PullProgress(bytes_done=5, bytes_total=10))
    seen = make(path).read_progress()
    assert (seen.bytes_done, seen.bytes_total, seen.waiting) == (5, 10, True)


def test_claim_that_was_taken_over_is_left_to_its_new_holder(path: Path) -> None:
    old, new = make(path), make(path)
    assert old.try_take()
    rewrite(path, started="1")
    assert new.try_take()
    old.renew(PullProgress())
    old.release()
    assert not make(path).try_take()


def test_claim_that_the_volume_refuses_leaves_neither_file_nor_descriptor(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[int] = []

    def refuse(fd: int, _text: bytes, _offset: int) -> int:
        opened.append(fd)
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as full:
        full.setattr(os, "pwrite", refuse)
        with pytest.raises(OSError, match="No space left"):
            make(path).try_take()
    assert not path.exists()
    for fd in opened:
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.fstat(fd)
    assert make(path).try_take()


def test_renewal_that_the_volume_refuses_keeps_the_claim_and_leaves_no_descriptor(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    holder = make(path)
    assert holder.try_take()
    opened: list[int] = []

    def refuse(fd: int, _text: bytes, _offset: int) -> int:
        opened.append(fd)
        raise OSError(errno.EIO, "Input/output error")

    with monkeypatch.context() as broken:
        broken.setattr(os, "pwrite", refuse)
        with pytest.raises(OSError, match="Input/output"):
            holder.renew(PullProgress(bytes_done=5))
    assert not make(path).try_take()
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(opened[0])
