"""The HTTP side of the stub: the OpenAI endpoints, health and metrics of the engine that it plays."""

import asyncio
import json
import os
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

from aiohttp import web

from plnt.sandbox.engine.behaviour import Behaviour
from plnt.sandbox.engine.command_line import Engine
from plnt.sandbox.engine.dialect import DONE, Dialect, render_error
from plnt.sandbox.engine.launch import Launch
from plnt.sandbox.engine.metrics import Meter, render_metrics
from plnt.sandbox.engine.request import Ask, RequestInvalid, read_ask

POD_HEADER = "X-Plnt-Pod"
"""Names the pod on every answer, so that a client can tell which revision served it."""
_SGLANG_HEALTH_SECONDS = 1.0
"""SGLang's ``/health`` generates a token and looks for it a second later."""
_ERROR_AFTER_TOKENS = 2
"""Tokens before an error inside a stream."""
_ABORT = "abort"


@dataclass(slots=True)
class Server:
    """One engine after its model is loaded."""

    launch: Launch
    behaviour: Behaviour
    max_length: int
    pod: str
    meter: Meter = field(default_factory=Meter)
    draining: bool = False
    iterations: list[dict[str, Any]] = field(default_factory=list)
    """What trtllm-serve's ``/metrics`` gives away once."""
    asked: int = 0
    answered: int = 0

    def build_app(self) -> web.Application:
        """Give the application with the engine's own paths."""
        app = web.Application(middlewares=[self._guard], client_max_size=2**24)
        app.on_response_prepare.append(self._sign)
        app.router.add_post("/v1/chat/completions", self._chat)
        app.router.add_post("/v1/completions", self._text)
        app.router.add_get("/v1/models", self._models)
        app.router.add_get("/health", self._health)
        app.router.add_get("/metrics", self._metrics)
        if self.launch.engine is Engine.SGLANG:
            app.router.add_get("/ready", self._ready)
        if self.launch.engine in {Engine.SGLANG, Engine.TRTLLM}:
            app.router.add_get("/health_generate", self._health)
        if self.launch.engine in {Engine.VLLM, Engine.TGI}:
            app.router.add_get("/ping", self._ready)
        if self.launch.engine is Engine.TRTLLM and self.launch.metrics:
            app.router.add_get("/prometheus/metrics", self._prometheus)
        return app

    async def _sign(self, _: web.Request, response: web.StreamResponse) -> None:
        response.headers[POD_HEADER] = self.pod

    @web.middleware
    async def _guard(self, request: web.Request, handler: Any) -> web.StreamResponse:
        """Ask for the API key where the engine does; TGI shows its model to everybody."""
        key = self.launch.api_key
        guarded = request.path.startswith("/v1/") and not (
            self.launch.engine is Engine.TGI and request.path == "/v1/models"
        )
        if key and guarded and request.headers.get("Authorization") != f"Bearer {key}":
            return self._refuse("Unauthorized", 401)
        response: web.StreamResponse = await handler(request)
        return response

    async def _health(self, request: web.Request) -> web.Response:
        generates = os.environ.get("SGLANG_ENABLE_HEALTH_ENDPOINT_GENERATION", "true").lower() == "true"
        if self.launch.engine is Engine.SGLANG and generates:
            await asyncio.sleep(_SGLANG_HEALTH_SECONDS)
        return await self._ready(request)

    async def _ready(self, _: web.Request) -> web.Response:
        stopping = self.draining and self.launch.engine is Engine.SGLANG
        return web.Response(status=503 if stopping or self.behaviour.faults.not_ready else 200)

    async def _models(self, _: web.Request) -> web.Response:
        cards = [
            {
                "id": name,
                "object": "model",
                "created": 0,
                "owned_by": self.launch.engine,
                "root": self.launch.shown_model,
            }
            | {"max_model_len": self.max_length}
            for name in self.launch.names
        ]
        return web.json_response({"object": "list", "data": cards})

    async def _metrics(self, request: web.Request) -> web.Response:
        if self.launch.engine is Engine.TRTLLM:
            taken, self.iterations = self.iterations, []
            return web.json_response(taken)
        if not self.launch.metrics:
            raise web.HTTPNotFound
        return await self._prometheus(request)

    async def _prometheus(self, _: web.Request) -> web.Response:
        text = render_metrics(self.launch.engine, self.meter, self.launch.names[0])
        return web.Response(text=text, content_type="text/plain")

    async def _chat(self, request: web.Request) -> web.StreamResponse:
        return await self._complete(request, chat=True)

    async def _text(self, request: web.Request) -> web.StreamResponse:
        return await self._complete(request, chat=False)

    async def _complete(self, request: web.Request, *, chat: bool) -> web.StreamResponse:
        self.asked += 1
        every = self.behaviour.faults.http_500_every
        if every and self.asked % every == 0:
            return self._refuse("EngineCore encountered an issue", 500)
        try:
            ask = read_ask(await request.json(), chat=chat, max_length=self.max_length)
        except (RequestInvalid, ValueError) as error:
            return self._refuse(str(error), 400)
        if self.launch.engine is Engine.VLLM and ask.model and ask.model not in self.launch.names:
            return self._refuse(f"The model `{ask.model}` does not exist.", 404)
        return await self._answer(request, ask)

    async def _answer(self, request: web.Request, ask: Ask) -> web.StreamResponse:
        begun = time.monotonic()
        self.meter.running += 1
        self.meter.prompt_tokens += ask.prompt_tokens
        progress = _Progress(begun)
        try:
            response = await (self._stream if ask.stream else self._whole)(request, ask, progress)
        finally:
            self.meter.running -= 1
            self._count(progress)
        self.answered += 1
        return response

    def _count(self, progress: "_Progress") -> None:
        now = time.monotonic()
        decoding = now - progress.first if progress.first else 0.0
        self.meter.finish(progress.reason, progress.tokens, now - progress.begun, decoding)
        self.iterations = [*self.iterations[-999:], {"iter": self.answered, "numActiveRequests": self.meter.running}]
        print(f"INFO request finished: reason={progress.reason} tokens={progress.tokens}", flush=True)

    async def _whole(self, _: web.Request, ask: Ask, progress: "_Progress") -> web.Response:
        async for _word in self._decode(ask, progress):
            pass
        progress.reason = "length"
        body = self._dialect(ask).whole("".join(map(ask.word, range(ask.tokens))), ask.tokens, "length")
        if self.behaviour.faults.no_usage:
            del body["usage"]
        return web.json_response(body)

    async def _stream(self, request: web.Request, ask: Ask, progress: "_Progress") -> web.StreamResponse:
        dialect = self._dialect(ask)
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream", "Cache-Control": "no-cache"})
        await response.prepare(request)
        if self.draining and self.launch.engine is Engine.VLLM:
            await response.write(dialect.frame(dialect.token("", 0, _ABORT)) + DONE)
            return response
        async for word in self._decode(ask, progress):
            opening = dialect.opening() if progress.tokens == 1 else None
            if opening:
                await response.write(dialect.frame(opening))
            last = progress.tokens == ask.tokens and not self.behaviour.faults.no_done
            await response.write(dialect.frame(dialect.token(word, progress.tokens, "length" if last else None)))
            if self.behaviour.faults.error_in_band and progress.tokens == min(_ERROR_AFTER_TOKENS, ask.tokens):
                await response.write(dialect.frame(dialect.error("EngineCore encountered an issue")) + DONE)
                return response
        await self._end_stream(response, dialect, progress)
        return response

    async def _end_stream(self, response: web.StreamResponse, dialect: Dialect, progress: "_Progress") -> None:
        progress.reason = "length"
        if dialect.usage_last:
            await response.write(dialect.frame(dialect.closing_usage(progress.tokens)))
        if not self.behaviour.faults.no_done:
            await response.write(DONE)

    async def _decode(self, ask: Ask, progress: "_Progress") -> AsyncIterator[str]:
        """Give the tokens at their times; a late one does not delay those after it."""
        due = progress.begun + self.behaviour.ttft_ms / 1000
        for position in range(ask.tokens):
            if progress.tokens == self.behaviour.faults.stall_after_tokens:
                await asyncio.Event().wait()
            await asyncio.sleep(max(0.0, due - time.monotonic()))
            due += self.behaviour.tpot_ms / 1000
            self._observe(progress)
            yield ask.word(position)

    def _observe(self, progress: "_Progress") -> None:
        now = time.monotonic()
        progress.tokens += 1
        self.meter.decoded_tokens += 1
        if progress.tokens == 1:
            progress.first = now
            self.meter.first_token.observe(now - progress.begun)
        else:
            self.meter.between_tokens.observe(now - progress.latest)
        progress.latest = now

    def _dialect(self, ask: Ask) -> Dialect:
        prefix = "chatcmpl" if ask.chat else "cmpl"
        model = ask.model if self.launch.engine is Engine.TGI and ask.model not in {"", "tgi"} else self.launch.names[0]
        usage = not self.behaviour.faults.no_usage
        return Dialect(
            engine=self.launch.engine,
            chat=ask.chat,
            id=f"{prefix}-{uuid4().hex}",
            created=int(time.time()),
            model=model,
            prompt_tokens=ask.prompt_tokens,
            usage_last=ask.include_usage and usage,
            usage_always=ask.include_usage and ask.continuous_usage and usage,
        )

    def _refuse(self, message: str, status: int) -> web.Response:
        text = json.dumps({"error": render_error(self.launch.engine, message, status)})
        return web.Response(status=status, text=text, content_type="application/json")


@dataclass(slots=True)
class _Progress:
    """One answer under way; times are monotonic seconds."""

    begun: float
    first: float = 0.0
    latest: float = 0.0
    tokens: int = 0
    reason: str = _ABORT
