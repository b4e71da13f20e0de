"""Chunks as the four engines stream them."""

import json

import pytest

from plnt.errors import SmokeTestFailed
from plnt.model.completion_stream import CompletionStream, TokenTimes, read_error_words


def _read(*chunks: object) -> TokenTimes:
    """Read chunks that come one a second from second 1 on."""
    stream = CompletionStream()
    for second, chunk in enumerate(chunks, start=1):
        text = chunk if isinstance(chunk, str) else json.dumps(chunk)
        stream.feed(f"data: {text}\n\n".encode(), float(second))
    return stream.close()


def _delta(**delta: object) -> dict[str, object]:
    return {"choices": [{"index": 0, "delta": delta, "finish_reason": None}]}


def test_vllm_stream_counts_from_its_first_content() -> None:
    last = {"choices": [{"delta": {"content": "c"}, "finish_reason": "length", "stop_reason": None}]}
    usage = {"choices": [], "usage": {"prompt_tokens": 5, "completion_tokens": 3}}
    times = _read(_delta(role="assistant", content=""), _delta(content="a"), _delta(content="b"), last, usage, "[DONE]")
    assert (times.first_at, times.last_at, times.tokens, times.first_chunk_tokens) == (2, 4, 3, 1)


def test_sglang_stream_counts_from_its_first_reasoning() -> None:
    role = _delta(role="assistant", content="", reasoning_content=None, tool_calls=None)
    thought = _delta(role=None, content=None, reasoning_content="hm")
    times = _read(role, thought, _delta(content="a"), "[DONE]")
    assert (times.first_at, times.last_at, times.tokens) == (2, 3, None)


def test_tgi_stream_has_a_role_in_every_delta() -> None:
    times = _read(_delta(role="assistant", content="a"), _delta(role="assistant", content=""), "[DONE]")
    assert (times.first_at, times.last_at) == (1, 1)


def test_tensorrt_stream_has_a_role_without_content() -> None:
    times = _read(_delta(role="assistant"), _delta(content="", reasoning_content=""), _delta(content="a"), "[DONE]")
    assert times.first_at == 3


def test_tool_call_is_a_token() -> None:
    assert _read(_delta(tool_calls=[{"index": 0}]), "[DONE]").first_at == 1


def test_plain_completion_counts_its_text() -> None:
    times = _read({"choices": [{"text": "a", "finish_reason": None}]}, "[DONE]")
    assert times.first_at == 1


def test_running_usage_tells_the_tokens_of_the_first_chunk() -> None:
    first = {**_delta(content="abc"), "usage": {"completion_tokens": 10}}
    second = {**_delta(content="def"), "usage": {"completion_tokens": 20}}
    times = _read({**_delta(role="assistant"), "usage": {"completion_tokens": 0}}, first, second, "[DONE]")
    assert (times.tokens, times.first_chunk_tokens) == (20, 10)


def test_error_event_fails_the_stream() -> None:
    stream = CompletionStream()
    with pytest.raises(SmokeTestFailed, match="cuda"):
        stream.feed(b'event: error\ndata: {"message": "cuda"}\n\n', 0.0)


def test_endless_event_fails_the_stream() -> None:
    stream = CompletionStream()
    with pytest.raises(SmokeTestFailed, match="longer than"):
        stream.feed(b"x" * (1 << 21), 0.0)


@pytest.mark.parametrize(
    ("body", "words"),
    [
        pytest.param(b'{"error": {"message": "no such model", "code": 404}}', "no such model", id="OpenAI"),
        pytest.param(b'{"object": "error", "message": "too long"}', "too long", id="older vLLM"),
        pytest.param(b'{"error": "overloaded", "error_type": "overloaded"}', "overloaded", id="TGI"),
        pytest.param(b'{"detail": "Not Found"}', "Not Found", id="FastAPI"),
        pytest.param(b"no healthy\n upstream", "no healthy upstream", id="Envoy"),
        pytest.param(b"\xff" + b"x" * 1000, "\ufffd" + "x" * 299, id="long and not UTF-8"),
        pytest.param(b'{"a": 1}', '{"a": 1}', id="unknown JSON"),
    ],
)
def test_error_words_are_found_in_every_servers_answer(body: bytes, words: str) -> None:
    assert read_error_words(body) == words
