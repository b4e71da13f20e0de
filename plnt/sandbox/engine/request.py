"""What a completion request asks for, and the text that answers it."""

import zlib
from dataclasses import dataclass
from typing import Any

DEFAULT_TOKENS = {True: 64, False: 16}
"""Tokens of an answer when the request sets no bound, by "is a chat"; 16 is the API's default for texts."""

_WORDS = ("the", "orbit", "of", "a", "planet", "is", "an", "ellipse", "with", "its", "star", "at", "one", "focus")


class RequestInvalid(Exception):
    """The engine refuses the request with status 400."""


@dataclass(frozen=True, slots=True)
class Ask:
    """One completion request."""

    chat: bool
    model: str
    prompt_tokens: int
    """Words of the prompt: a stub has no tokenizer."""
    tokens: int
    stream: bool
    include_usage: bool
    continuous_usage: bool
    seed: int

    def word(self, position: int) -> str:
        """Give the token at ``position``; the same request gets the same answer."""
        return " " + _WORDS[(self.seed + position * 5) % len(_WORDS)]


def read_ask(data: Any, *, chat: bool, max_length: int) -> Ask:
    """Read the body of a request.

    Raises:
        RequestInvalid: it is no request, or asks for more tokens than the context holds.
    """
    if not isinstance(data, dict):
        raise RequestInvalid("the body is no JSON object")
    text = _read_messages(data.get("messages")) if chat else str(data.get("prompt") or "")
    if not text:
        raise RequestInvalid(f"'{'messages' if chat else 'prompt'}' is required")
    asked = data.get("max_completion_tokens") or data.get("max_tokens") or DEFAULT_TOKENS[chat]
    prompt_tokens = len(text.split())
    if not isinstance(asked, int) or asked < 1 or asked + prompt_tokens > max_length:
        raise RequestInvalid(
            f"max_tokens {asked} with {prompt_tokens} prompt tokens: this model's maximum context length is"
            f" {max_length} tokens"
        )
    options = data.get("stream_options") or {}
    return Ask(
        chat=chat,
        model=str(data.get("model") or ""),
        prompt_tokens=prompt_tokens,
        tokens=asked,
        stream=bool(data.get("stream")),
        include_usage=bool(options.get("include_usage")),
        continuous_usage=bool(options.get("continuous_usage_stats")),
        seed=zlib.crc32(text.encode()),
    )


def _read_messages(messages: Any) -> str:
    if not isinstance(messages, list):
        return ""
    return " ".join(str(message.get("content") or "") for message in messages if isinstance(message, dict))
