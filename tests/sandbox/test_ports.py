import socket
from pathlib import Path

import pytest

from plnt.sandbox.ports import BLOCK, NAMES, PortTaken, claim_block, find_listeners
from plnt.sandbox.state import State, StateInvalid


def test_two_sandboxes_get_different_ports_and_pod_ranges(tmp_path: Path) -> None:
    first, second = claim_block(State(tmp_path / "a")), claim_block(State(tmp_path / "b"))
    try:
        assert abs(first.block.base - second.block.base) >= BLOCK
        assert first.block.range != second.block.range
    finally:
        first.release()
        second.release()


def test_state_folder_keeps_its_block_from_run_to_run(tmp_path: Path) -> None:
    state, other = State(tmp_path / "a"), State(tmp_path / "b")
    held = claim_block(other)
    first = claim_block(state)
    first.release()
    held.release()
    again = claim_block(state)
    again.release()
    assert again.block == first.block


def test_taken_port_is_named_with_its_owner(tmp_path: Path) -> None:
    claim = claim_block(State(tmp_path))
    claim.release()
    with socket.socket() as taker:
        taker.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        taker.bind(("127.0.0.1", claim.block["temporal-ui"]))
        taker.listen()
        with pytest.raises(PortTaken, match=rf"port {claim.block['temporal-ui']} \(temporal-ui\) .*\(pid \d+\)"):
            claim_block(State(tmp_path))


def test_asked_block_is_refused_while_another_launcher_holds_it(tmp_path: Path) -> None:
    claim = claim_block(State(tmp_path / "a"))
    try:
        with pytest.raises(PortTaken, match=r"belong to the sandbox of .*\(pid \d+\).*--port-base"):
            claim_block(State(tmp_path / "b"), claim.block.base)
    finally:
        claim.release()


def test_folder_that_holds_something_else_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").touch()
    with pytest.raises(StateInvalid, match="--state"):
        claim_block(State(tmp_path))


def test_block_has_room_for_every_port_and_the_claim() -> None:
    assert len(set(NAMES)) == len(NAMES) < BLOCK


def test_listeners_are_found_with_their_process() -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        assert "pid" in find_listeners()[listener.getsockname()[1]]
