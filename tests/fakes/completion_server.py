"""An OpenAI-compatible server whose timing, framing and faults are set by the test."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web


@dataclass(slots=True)
class Script:
    """How the server answers; times in seconds."""

    ttft: float = 0.01
    tpot: float = 0.002
    tokens: int = 20
    per_chunk: int = 1
    """Tokens packed in a chunk."""
    usage: bool = True
    running_usage: bool = True
    """Whether it honours ``continuous_usage_stats``."""
    field: str = "content"
    """Delta field of the tokens: ``content``, ``reasoning``, ``reasoning_content``."""
    reasoning_tokens: int = 0
    """Tokens sent as ``reasoning_content`` before those in ``field``."""
    role_chunk: bool = True
    empty_chunk_after: float | None = None
    """Seconds after which an empty delta without role goes out, before the first token."""
    comments: bool = False
    unknown_events: bool = False
    line_end: str = "\n"
    done: bool = True
    finish_reason: str = "length"
    error_after: int | None = None
    """Tokens after which it sends an error in the stream."""
    cut_after: int | None = None
    """Tokens after which it closes the connection."""
    garbage: bool = False
    piece_bytes: int | None = None
    """Size of the writes that each event is cut into."""
    chat_status: int = 200
    chat_words: str = ""
    status: int = 200
    words: str = "the engine is out of memory"
    echo_prompt: bool = False
    """Whether refusals repeat the prompt."""
    models_after: int = 0
    """Requests to ``/v1/models`` that are answered 503 first."""
    fail_from: int | None = None
    """Number of the first request, from 1, that ``status`` or ``error_after`` applies to; none = all."""


@dataclass(slots=True)
class CompletionServer:
    """The running server and what it was asked."""

    script: Script
    url: str = ""
    models_asked: int = 0
    requests: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    peers: set[Any] = field(default_factory=set)
    at_once: int = 0
    most_at_once: int = 0
    _asked: asyncio.Condition = field(default_factory=asyncio.Condition)

    async def wait_for_requests(self, count: int) -> None:
        """Wait until ``count`` completions were asked."""
        async with self._asked:
            await self._asked.wait_for(lambda: len(self.requests) >= count)

    async def answer_models(self, _: web.Request) -> web.Response:
        self.models_asked += 1
        if self.models_asked <= self.script.models_after:
            return web.Response(status=503, text="no healthy upstream")
        return web.json_response({"object": "list", "data": [{"id": "m", "object": "model"}]})

    async def answer_completion(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        async with self._asked:
            self.requests.append((request.path, body))
            self._asked.notify_all()
        self.peers.add(request.transport.get_extra_info("peername") if request.transport else None)
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        try:
            return await self._answer(request, body)
        finally:
            self.at_once -= 1

    async def _answer(self, request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
        script = self.script
        if "chat" in request.path and script.chat_status != 200:
            return web.json_response({"error": {"message": script.chat_words}}, status=script.chat_status)
        if script.status != 200 and self._is_failing():
            prompt = body["messages"][0]["content"] if "messages" in body else body["prompt"]
            words = f"{script.words}: {prompt}" if script.echo_prompt else script.words
            return web.json_response({"error": {"message": words}}, status=script.status)
        answer = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await answer.prepare(request)
        await self._stream(answer, body, chat="chat" in request.path)
        return answer

    def _is_failing(self) -> bool:
        return self.script.fail_from is None or len(self.requests) >= self.script.fail_from

    async def _stream(self, answer: web.StreamResponse, body: dict[str, Any], *, chat: bool) -> None:
        script = self.script
        if script.comments:
            await self._write(answer, f": keep-alive{script.line_end}{script.line_end}")
        if script.unknown_events:
            await self._write(answer, f"event: sglext_ids{script.line_end}data: [1]{script.line_end}{script.line_end}")
        if script.role_chunk and chat:
            await self._send(answer, {"choices": [{"delta": {"role": "assistant", "content": ""}}]})
        if script.empty_chunk_after is not None:
            await asyncio.sleep(script.empty_chunk_after)
            await self._send(answer, {"choices": [{"delta": {"content": ""}}]})
        await asyncio.sleep(script.ttft - (script.empty_chunk_after or 0))
        await self._send_tokens(answer, body, chat=chat)

    async def _send_tokens(self, answer: web.StreamResponse, body: dict[str, Any], *, chat: bool) -> None:
        script = self.script
        failing = self._is_failing()
        for first in range(0, script.tokens, script.per_chunk):
            count = min(script.per_chunk, script.tokens - first)
            if first:
                await asyncio.sleep(script.tpot * count)
            if failing and script.error_after is not None and first >= script.error_after:
                await self._send(answer, {"error": {"message": script.words, "code": 500}})
                break
            if script.cut_after is not None and first >= script.cut_after:
                return
            chunk = _token_chunk(script, first, count, chat=chat)
            if script.running_usage and body["stream_options"].get("continuous_usage_stats"):
                chunk["usage"] = {"completion_tokens": first + count}
            await self._send(answer, chunk)
        else:
            await self._finish(answer, body)
        if script.done:
            await self._write(answer, f"data: [DONE]{script.line_end}{script.line_end}")

    async def _finish(self, answer: web.StreamResponse, body: dict[str, Any]) -> None:
        if self.script.garbage:
            await self._write(answer, "data: {oops\n\n")
        await self._send(answer, {"choices": [{"delta": {}, "finish_reason": self.script.finish_reason}]})
        if self.script.usage and body["stream_options"]["include_usage"]:
            await self._send(answer, {"choices": [], "usage": {"completion_tokens": self.script.tokens}})

    async def _send(self, answer: web.StreamResponse, chunk: dict[str, Any]) -> None:
        end = self.script.line_end
        await self._write(answer, f"data: {json.dumps(chunk, ensure_ascii=False)} {end}{end}")

    async def _write(self, answer: web.StreamResponse, text: str) -> None:
        data = text.encode()
        step = self.script.piece_bytes or len(data)
        for start in range(0, len(data), step):
            await answer.write(data[start : start + step])
            await asyncio.sleep(0)


def _token_chunk(script: Script, first: int, count: int, *, chat: bool) -> dict[str, Any]:
    text = "é日 " * count
    if not chat:
        return {"choices": [{"text": text, "finish_reason": None}]}
    name = "reasoning_content" if first < script.reasoning_tokens else script.field
    return {"choices": [{"delta": {name: text}, "finish_reason": None}]}


@asynccontextmanager
async def serve_completions(script: Script) -> AsyncIterator[CompletionServer]:
    """Serve on a free port of loopback while the context is open."""
    server = CompletionServer(script)
    app = web.Application()
    app.router.add_get("/v1/models", server.answer_models)
    app.router.add_post("/v1/chat/completions", server.answer_completion)
    app.router.add_post("/v1/completions", server.answer_completion)
    runner = web.AppRunner(app, access_log=None, handler_cancellation=True, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    host, port = runner.addresses[0][:2]
    server.url = f"http://{host}:{port}"
    try:
        yield server
    finally:
        await runner.cleanup()
