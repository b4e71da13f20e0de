"""The JSON that each engine sends for one completion: chunk by chunk, or whole.

The differences matter to whoever measures streams: where the role stands, which deltas hold nulls, what an
error in the stream looks like, what follows the line end.
"""

import json
from dataclasses import dataclass
from typing import Any

from plnt.sandbox.engine.command_line import Engine

Body = dict[str, Any]

DONE = b"data: [DONE]\n\n"


@dataclass(frozen=True, slots=True)
class Dialect:
    """Shapes of one answer of one engine."""

    engine: Engine
    chat: bool
    id: str
    created: int
    model: str
    prompt_tokens: int
    usage_last: bool = False
    """A chunk with the usage and no choices comes last (``stream_options.include_usage``)."""
    usage_always: bool = False
    """Every chunk has the usage so far (``continuous_usage_stats``; vLLM and trtllm-serve)."""

    def opening(self) -> Body | None:
        """Give the chunk that comes with the first token, before it; TGI and text completions have none."""
        if not self.chat or self.engine is Engine.TGI:
            return None
        delta: Body = {"role": "assistant"}
        if self.engine is not Engine.TRTLLM:
            delta["content"] = ""
        if self.engine is Engine.SGLANG:
            delta |= {"reasoning_content": None, "tool_calls": None}
        return self._chunk(delta, None, 0)

    def token(self, text: str, count: int, finish: str | None) -> Body:
        """Give the chunk of the ``count``-th token."""
        if not self.chat:
            return self._chunk(text, finish, count)
        match self.engine:
            case Engine.VLLM:
                delta: Body = {"content": text}
            case Engine.SGLANG:
                delta = {"role": None, "content": text, "reasoning_content": None, "tool_calls": None}
            case Engine.TGI:
                delta = {"role": "assistant", "content": text}
            case Engine.TRTLLM:
                delta = {"content": text, "reasoning_content": ""}
        return self._chunk(delta, finish, count)

    def closing_usage(self, count: int) -> Body:
        """Give the chunk that holds the usage alone."""
        chunk = self._head(self._kind(streamed=True)) | {"choices": [], "usage": self.usage(count)}
        return chunk | {"id": ""} if self.engine is Engine.TGI else chunk

    def whole(self, text: str, count: int, finish: str) -> Body:
        """Give the answer that is not streamed."""
        choice: Body = {"index": 0, "logprobs": None, "finish_reason": finish}
        choice |= {"message": {"role": "assistant", "content": text}} if self.chat else {"text": text}
        return self._head(self._kind(streamed=False)) | {"choices": [choice], "usage": self.usage(count)}

    def usage(self, count: int) -> Body:
        """Give the usage after ``count`` generated tokens."""
        return {
            "prompt_tokens": self.prompt_tokens,
            "completion_tokens": count,
            "total_tokens": self.prompt_tokens + count,
        }

    def error(self, message: str) -> Body:
        """Give the error object that is sent inside a stream."""
        return {"error": render_error(self.engine, message, 422 if self.engine is Engine.TGI else 500)}

    def frame(self, chunk: Body) -> bytes:
        """Encode a chunk as an event; trtllm-serve leaves a space at the line's end."""
        end = " \n\n" if self.engine is Engine.TRTLLM else "\n\n"
        return f"data: {json.dumps(chunk, separators=(',', ':'))}{end}".encode()

    def _kind(self, *, streamed: bool) -> str:
        if not self.chat:
            return "text_completion"
        return "chat.completion.chunk" if streamed else "chat.completion"

    def _head(self, kind: str) -> Body:
        return {"id": self.id, "object": kind, "created": self.created, "model": self.model}

    def _chunk(self, content: Body | str, finish: str | None, count: int) -> Body:
        choice: Body = {"index": 0, "delta" if self.chat else "text": content, "logprobs": None}
        choice["finish_reason"] = finish
        chunk = self._head(self._kind(streamed=True)) | {"choices": [choice]}
        if self.usage_always and self.engine in {Engine.VLLM, Engine.TRTLLM}:
            chunk["usage"] = self.usage(count)
        return chunk


def render_error(engine: Engine, message: str, status: int) -> Body:
    """Give the engine's error object."""
    if engine is Engine.TGI:
        return {"message": message, "http_status_code": status}
    kind = {400: "BadRequestError", 401: "Unauthorized", 404: "NotFoundError"}.get(status, "InternalServerError")
    return {"message": message, "type": kind, "param": None, "code": status}
