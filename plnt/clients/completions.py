"""The OpenAI-compatible API of an inference server, as a client that times tokens."""

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from time import perf_counter
from types import SimpleNamespace
from typing import Any

import aiohttp

from plnt.errors import SmokeTestFailed, SmokeTestInconclusive
from plnt.model.completion_stream import CompletionStream, TokenTimes, read_error_words

MAX_TOKENS = 32
"""Tokens asked of each prompt: TPOT wants 16 or more, a budget test no long answers."""
PROBE_SECONDS = 5.0
"""Longest wait for one answer of ``/v1/models``."""
_ERROR_BYTES = 65_536
CHAT = "/v1/chat/completions"
TEXT = "/v1/completions"


class Completions:
    """One connection to one server; open it with `open_completions`."""

    def __init__(self, session: aiohttp.ClientSession, url: str, model: str) -> None:
        self._session = session
        self._url = url.rstrip("/")
        self._model = model
        self._path = CHAT

    async def probe(self) -> str:
        """Ask ``/v1/models``; gives an empty string when it answers 200, else one line that says what happened."""
        limits = aiohttp.ClientTimeout(total=PROBE_SECONDS)
        try:
            async with self._session.get(f"{self._url}/v1/models", timeout=limits, allow_redirects=False) as answer:
                words = read_error_words(await answer.content.read(_ERROR_BYTES))
                return "" if answer.status == 200 else f"{answer.status} {words}"
        except TimeoutError:
            return f"no answer within {PROBE_SECONDS:g} s"
        except (aiohttp.ClientError, OSError) as error:
            return f"{type(error).__name__}: {error}"

    async def stream(self, prompt: str, seconds: float) -> tuple[float, TokenTimes]:
        """Stream one completion; gives when its request was written, by perf_counter, and its token times.

        A server that has no chat route or no chat template is asked for plain completions from then on.

        Raises:
            SmokeTestFailed: the server's answer is no good, or not complete after ``seconds``.
            SmokeTestInconclusive: the server could not be asked.
        """
        with _judged(prompt, seconds):
            try:
                return await self._ask(prompt, seconds)
            except _NoChatError:
                self._path = TEXT
                return await self._ask(prompt, seconds)

    async def _ask(self, prompt: str, seconds: float) -> tuple[float, TokenTimes]:
        sent = SimpleNamespace(at=perf_counter())
        async with self._session.post(
            f"{self._url}{self._path}",
            json=self._body(prompt),
            timeout=aiohttp.ClientTimeout(total=seconds),
            allow_redirects=False,
            trace_request_ctx=sent,
        ) as answer:
            if answer.status != 200:
                self._refuse(answer.status, read_error_words(await answer.content.read(_ERROR_BYTES)))
            stream = CompletionStream()
            while piece := await answer.content.readany():
                stream.feed(piece, perf_counter())
            return sent.at, stream.close()

    def _body(self, prompt: str) -> dict[str, Any]:
        asked = {"messages": [{"role": "user", "content": prompt}]} if self._path == CHAT else {"prompt": prompt}
        return {
            "model": self._model,
            **asked,
            "max_tokens": MAX_TOKENS,
            "temperature": 0,
            "stream": True,
            # Running usage tells how many tokens a server packs in its first chunk.
            "stream_options": {"include_usage": True, "continuous_usage_stats": True},
        }

    def _refuse(self, status: int, words: str) -> None:
        lacks_template = status in {400, 422} and "template" in words.lower()
        if self._path == CHAT and (status == 404 or lacks_template):
            raise _NoChatError
        raise SmokeTestFailed(f"POST {self._path} answered {status}: {words}")


class _NoChatError(Exception):
    """The server cannot chat with this model; it may still complete."""


@contextmanager
def _judged(prompt: str, seconds: float) -> Iterator[None]:
    """Tell the server's faults from the tester's own, and keep the prompt out of both."""
    try:
        yield
    except SmokeTestFailed as error:
        raise SmokeTestFailed(str(error).replace(prompt, "(prompt)")) from None
    except TimeoutError as error:
        raise SmokeTestFailed(f"no complete answer within {seconds:g} s") from error
    except (aiohttp.ClientConnectorDNSError, aiohttp.ClientProxyConnectionError) as error:
        raise SmokeTestInconclusive(f"the server could not be asked: {error}") from error
    except (aiohttp.ClientError, OSError) as error:
        raise SmokeTestFailed(f"the connection failed: {type(error).__name__}: {error}") from error


async def _note_sending(_: aiohttp.ClientSession, context: SimpleNamespace, __: object) -> None:
    if context.trace_request_ctx is not None:
        context.trace_request_ctx.at = perf_counter()


@asynccontextmanager
async def open_completions(url: str, model: str) -> AsyncIterator[Completions]:
    """Open a session with one connection, through the proxy that the standard variables name, if any.

    The clock starts when a request's headers are written, so that connecting is no part of a TTFT.
    """
    trace = aiohttp.TraceConfig()
    trace.on_request_headers_sent.append(_note_sending)
    async with aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=1), trust_env=True, trace_configs=[trace]
    ) as session:
        yield Completions(session, url, model)
