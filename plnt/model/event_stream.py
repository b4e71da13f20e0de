"""An incremental reader of server-sent events over bytes, as inference servers stream completions."""

from dataclasses import dataclass

MAX_EVENT_BYTES = 1 << 20
"""Longest event that is kept, in bytes: a server that never ends one must not fill the memory."""


@dataclass(frozen=True, slots=True)
class Event:
    """One dispatched event: its name (empty for the default one) and its data lines joined by newlines."""

    name: str
    data: bytes


class EventStream:
    """Reads events from pieces of any size, cut anywhere, inside a line end or a UTF-8 character too.

    Lines end with LF or CRLF. Comments and events without data give nothing.
    """

    def __init__(self) -> None:
        self._rest = b""
        self._name = ""
        self._data: list[bytes] = []

    def feed(self, piece: bytes) -> list[Event]:
        """Give the events that ``piece`` completes.

        Raises:
            ValueError: one is longer than MAX_EVENT_BYTES.
        """
        *lines, self._rest = (self._rest + piece).split(b"\n")
        events = [event for line in lines if (event := self._read_line(line.removesuffix(b"\r"))) is not None]
        if len(self._rest) + sum(map(len, self._data)) > MAX_EVENT_BYTES:
            raise ValueError(f"an event of the stream is longer than {MAX_EVENT_BYTES} bytes")
        return events

    def _read_line(self, line: bytes) -> Event | None:
        if not line:
            return self._dispatch()
        field, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if field == b"data":
            self._data.append(value)
        elif field == b"event":
            self._name = value.decode(errors="replace")
        return None

    def _dispatch(self) -> Event | None:
        name, data = self._name, self._data
        self._name, self._data = "", []
        return Event(name, b"\n".join(data)) if data else None
