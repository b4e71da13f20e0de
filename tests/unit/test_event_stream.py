"""Server-sent events out of bytes that are cut anywhere."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plnt.model.event_stream import MAX_EVENT_BYTES, Event, EventStream


def _read(*pieces: bytes) -> list[Event]:
    stream = EventStream()
    return [event for piece in pieces for event in stream.feed(piece)]


@pytest.mark.parametrize(
    ("sent", "events"),
    [
        pytest.param(b"data: a\n\n", [Event("", b"a")], id="LF"),
        pytest.param(b"data: a\r\n\r\n", [Event("", b"a")], id="CRLF"),
        pytest.param(b"data:a\n\n", [Event("", b"a")], id="no space"),
        pytest.param(b"data: a \n\n", [Event("", b"a ")], id="trailing space stays"),
        pytest.param(b"data: a\ndata: b\n\n", [Event("", b"a\nb")], id="lines are joined"),
        pytest.param(b": ping\n\ndata: a\n\n", [Event("", b"a")], id="comment"),
        pytest.param(b"event: error\ndata: a\n\ndata: b\n\n", [Event("error", b"a"), Event("", b"b")], id="name"),
        pytest.param(b"event: x\n\ndata: b\n\n", [Event("", b"b")], id="event without data"),
        pytest.param(b"id: 1\nretry: 5\ndata: a\n\n", [Event("", b"a")], id="other fields"),
        pytest.param(b"data: a\n\ndata: b\n\ndata: c", [Event("", b"a"), Event("", b"b")], id="last one unfinished"),
    ],
)
def test_event_stream_reads_what_was_sent(sent: bytes, events: list[Event]) -> None:
    assert _read(sent) == events


@given(st.lists(st.integers(min_value=0, max_value=60)), st.sampled_from(["\n", "\r\n"]))
def test_event_stream_reads_the_same_however_it_is_cut(cuts: list[int], end: str) -> None:
    sent = f"data: é日{end}{end}: c{end}{end}event: e{end}data: 1{end}data: 2{end}{end}".encode()
    places = sorted({0, *(cut for cut in cuts if cut < len(sent)), len(sent)})
    pieces = [sent[a:b] for a, b in pairwise(places)]
    assert _read(*pieces) == [Event("", "é日".encode()), Event("e", b"1\n2")]


def test_event_stream_refuses_an_event_without_end() -> None:
    stream = EventStream()
    assert stream.feed(b"x" * MAX_EVENT_BYTES) == []
    with pytest.raises(ValueError, match="longer than"):
        stream.feed(b"x")
