"""What the events of one streamed completion say: when its tokens came, how many, and whether it ended well.

Covers the streams of vLLM, SGLang, TGI and TensorRT-LLM, whose first chunks, reasoning fields, usage and
errors differ; all of them answer errors in the middle of a stream with status 200.
"""

import json
from typing import Any

from pydantic import ValidationError

from plnt.errors import SmokeTestFailed
from plnt.model.event_stream import Event, EventStream
from plnt.model.message import Message

DONE = b"[DONE]"
MAX_WORDS_CHARS = 300
"""Longest quotation of a server's error, in characters."""
_BAD_ENDS = frozenset({"error", "abort"})
"""Finish reasons of a completion that was given up; vLLM sends ``abort`` with status 200 while it drains."""


class _Delta(Message):
    content: str | None = None
    reasoning: str | None = None
    reasoning_content: str | None = None
    tool_calls: list[Any] | None = None
    function_call: dict[str, Any] | None = None

    def has_token(self) -> bool:
        return any((self.content, self.reasoning, self.reasoning_content, self.tool_calls, self.function_call))


class _Choice(Message):
    delta: _Delta | None = None
    text: str | None = None
    finish_reason: str | None = None

    def has_token(self) -> bool:
        return bool(self.text) or (self.delta is not None and self.delta.has_token())


class _Usage(Message):
    completion_tokens: int | None = None


class _Chunk(Message):
    choices: list[_Choice] | None = None
    usage: _Usage | None = None
    error: Any = None


class TokenTimes(Message):
    """When the tokens of one completion came, by the reader's clock in seconds, and how many there were."""

    first_at: float
    last_at: float
    tokens: int | None
    """Completion tokens by the server's usage; none when it gave none."""
    first_chunk_tokens: int = 1
    """Tokens in the first chunk by the server's running usage; 1 when it gives none."""


class CompletionStream:
    """Follows one stream; every fault of it is a SmokeTestFailed in the server's words."""

    def __init__(self) -> None:
        self._events = EventStream()
        self._first_at: float | None = None
        self._last_at = 0.0
        self._tokens: int | None = None
        self._first_chunk_tokens = 1
        self._done = False

    def feed(self, piece: bytes, at: float) -> None:
        """Take bytes that arrived at ``at``.

        Raises:
            SmokeTestFailed: they hold an error, or something that is no chunk of a completion.
        """
        try:
            events = self._events.feed(piece)
        except ValueError as error:
            raise SmokeTestFailed(str(error)) from error
        for event in events:
            self._take(event, at)

    def close(self) -> TokenTimes:
        """Give the times, once the server has closed the stream.

        Raises:
            SmokeTestFailed: it ended early, or without any token.
        """
        if not self._done:
            raise SmokeTestFailed("the stream ended without [DONE]: it was cut off")
        if self._first_at is None:
            raise SmokeTestFailed("the stream ended without a single token")
        return TokenTimes(
            first_at=self._first_at,
            last_at=self._last_at,
            tokens=self._tokens,
            first_chunk_tokens=self._first_chunk_tokens,
        )

    def _take(self, event: Event, at: float) -> None:
        data = event.data.strip()
        if event.name == "error":
            raise SmokeTestFailed(f"the server sent an error in the stream: {read_error_words(data)}")
        if event.name not in {"", "message"} or self._done:
            return
        if data == DONE:
            self._done = True
            return
        try:
            chunk = _Chunk.model_validate_json(data)
        except ValidationError:
            raise SmokeTestFailed("the stream holds an event that is no chunk of a completion") from None
        if chunk.error:
            raise SmokeTestFailed(f"the server sent an error in the stream: {read_error_words(data)}")
        self._count(chunk, at)

    def _count(self, chunk: _Chunk, at: float) -> None:
        if chunk.usage is not None and chunk.usage.completion_tokens is not None:
            self._tokens = chunk.usage.completion_tokens
        choices = chunk.choices or []
        ends = [choice.finish_reason for choice in choices if choice.finish_reason in _BAD_ENDS]
        if ends:
            raise SmokeTestFailed(f"the server gave the completion up: finish_reason {ends[0]}")
        if not any(choice.has_token() for choice in choices):
            return
        self._last_at = at
        if self._first_at is None:
            self._first_at = at
            self._first_chunk_tokens = max(1, self._tokens or 1)


def read_error_words(body: bytes) -> str:
    """Give the message in an error answer of any of the servers, in one line."""
    text = body.decode(errors="replace")
    try:
        data = json.loads(text)
    except ValueError:
        return _shorten(text)
    for key in ("error", "message", "detail"):
        if isinstance(data, dict) and data.get(key):
            data = data[key]
    return _shorten(data if isinstance(data, str) else json.dumps(data))


def _shorten(text: str) -> str:
    return " ".join(text.split())[:MAX_WORDS_CHARS]
