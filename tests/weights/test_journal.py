"""What of a partial download can be trusted after a crash."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plnt.clients.weights import journal as journal_module
from plnt.clients.weights import partial as partial_module
from plnt.clients.weights.journal import Journal
from plnt.clients.weights.partial import Partial
from plnt.clients.weights.ranges import Ranges


def test_notes_are_read_back_merged(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "j")
    journal.note(0, 10)
    journal.note(20, 30)
    journal.note(10, 20)
    assert list(Journal(tmp_path / "j").read()) == [(0, 30)]


def test_torn_tail_is_skipped_and_later_notes_count(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "j")
    journal.note(0, 10)
    journal.note(10, 20)
    journal.close()
    text = (tmp_path / "j").read_bytes()
    (tmp_path / "j").write_bytes(text[:-9])
    again = Journal(tmp_path / "j")
    assert list(again.read()) == [(0, 10)]
    again.note(30, 40)
    assert list(Journal(tmp_path / "j").read()) == [(0, 10), (30, 40)]


def test_after_a_restart_of_the_machine_only_synced_bytes_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = Journal(tmp_path / "j")
    journal.note_synced(Ranges([(0, 10)]))
    journal.note(10, 20)
    (tmp_path / "boot").write_text("another-boot\n")
    monkeypatch.setattr(journal_module, "_BOOT_ID", tmp_path / "boot")
    assert list(Journal(tmp_path / "j").read()) == [(0, 10)]


def test_partial_without_its_data_starts_from_nothing(tmp_path: Path) -> None:
    partial = Partial(tmp_path, "key", 100)
    partial.note(0, 50)
    partial.close()
    (tmp_path / "key.data").unlink()
    again = Partial(tmp_path, "key", 100)
    assert again.gaps() == [(0, 100)]
    again.close()


def test_note_that_comes_after_a_partial_was_forgotten_leaves_no_file(tmp_path: Path) -> None:
    partial = Partial(tmp_path, "key", 100)
    partial.note(0, 50)
    partial.forget()
    partial.note(50, 60)
    assert not list(tmp_path.iterdir())
    partial.close()


def test_bytes_brought_to_the_volume_outlive_a_restart_of_the_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(partial_module, "SYNC_BYTES", 40)
    partial = Partial(tmp_path, "key", 100)
    partial.note(0, 50)
    partial.write_back()
    partial.note(50, 60)
    partial.write_back()
    partial.close()
    (tmp_path / "boot").write_text("another-boot\n")
    monkeypatch.setattr(journal_module, "_BOOT_ID", tmp_path / "boot")
    again = Partial(tmp_path, "key", 100)
    assert again.gaps() == [(50, 100)]
    again.close()


@given(st.lists(st.tuples(st.integers(0, 60), st.integers(0, 60))))
def test_ranges_and_gaps_together_cover_everything_once(pairs: list[tuple[int, int]]) -> None:
    ranges = Ranges((first, end) for first, end in pairs)
    covered = {byte for first, end in pairs for byte in range(first, end)}
    missing = {byte for first, end in ranges.gaps(60) for byte in range(first, end)}
    assert covered | missing == set(range(60))
    assert not covered & missing
    assert ranges.total == len(covered)
    assert all(ranges.reach(byte) > byte for byte in covered)


NOTES = st.lists(
    st.one_of(
        st.tuples(st.just("note"), st.integers(0, 90), st.integers(1, 10)),
        st.tuples(st.just("synced"), st.integers(0, 90), st.integers(1, 10)),
        st.tuples(st.just("torn"), st.integers(1, 60), st.just(0)),
        st.tuples(st.just("noise"), st.integers(0, 255), st.just(0)),
    ),
    max_size=12,
)


@given(events=NOTES)
def test_journal_never_claims_a_byte_that_was_not_noted_whatever_a_crash_leaves(
    events: list[tuple[str, int, int]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("journal") / "j"
    noted: set[int] = set()
    certain: set[int] = set()
    for kind, first, length in events:
        covered = set(range(first, first + length))
        journal = Journal(path)
        if kind == "note":
            journal.note(first, first + length)
        elif kind == "synced":
            journal.note_synced(Ranges([(first, first + length)]))
        elif kind == "torn" and path.exists():
            path.write_bytes(path.read_bytes()[:-first])
        elif kind == "noise":
            with path.open("ab") as file:
                file.write(bytes([first, 10, first]))
        journal.close()
        if kind in {"note", "synced"}:
            noted |= covered
            certain |= covered
        elif kind == "torn":
            certain = set()
    found = {byte for first, end in Journal(path).read() for byte in range(first, end)}
    assert certain <= found <= noted
