"""The smoke pool: measures a canary before any user's request reaches it."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from time import monotonic
from typing import Any
from uuid import uuid4

from activities.progress import heartbeat, report_progress
from plnt.clients.completions import Completions, open_completions
from plnt.clients.loop_lag import LoopLag, watch_loop
from plnt.errors import SmokeTestFailed, SmokeTestInconclusive
from plnt.model import latency
from plnt.model.completion_stream import TokenTimes
from plnt.model.latency import Outcome, Sample
from plnt.model.message import Message
from plnt.model.messages import RunSmokeTest, SmokeReport
from plnt.settings import PoolSettings
from plnt.steps import RUN_SMOKE_TEST, implements

WARM_UPS = 2
"""Requests before the measured ones: the first ones compile kernels and fill caches."""
WARM_UP_SECONDS = 300.0
"""Longest warm-up request: a first request may compile for minutes."""
PROMPT_SECONDS = 120.0
"""Longest measured prompt."""
PROBE_INTERVAL_SECONDS = 0.25
PROGRESS_SECONDS = 1.0
"""Shortest time between two words of progress."""

_SUBJECTS = (
    "how a river shapes the land on its way to the sea",
    "a day in the life of a lighthouse keeper",
    "how bread is made, from the field to the table",
    "the journey of a letter across a continent",
    "what a city looks like from a balloon at dawn",
)


class PromptsDone(Message):
    """Heartbeat of a smoke test."""

    prompts_done: int
    prompts: int


class _Words:
    """Progress for the status, at most one word per PROGRESS_SECONDS."""

    def __init__(self) -> None:
        self._next = 0.0

    async def say(self, text: str) -> None:
        if monotonic() >= self._next:
            self._next = monotonic() + PROGRESS_SECONDS
            await report_progress(text)


async def _await_server(server: Completions, request: RunSmokeTest) -> None:
    """Wait for the first answer: routes and Service tables lag behind ready pods."""
    await report_progress(f"waiting for {request.url}/v1/models")
    deadline = monotonic() + request.wait_seconds
    while fault := await server.probe():
        if monotonic() >= deadline:
            raise SmokeTestInconclusive(
                f"GET {request.url}/v1/models did not answer 200 within {request.wait_seconds:g} s "
                f"although every pod is ready (last: {fault}); check the smoke pool's route to the Service"
            )
        await asyncio.sleep(PROBE_INTERVAL_SECONDS)


async def _warm_up(server: Completions, attempt: str) -> None:
    await report_progress("warming up")
    for number in range(1, WARM_UPS + 1):
        await _ask(server, f"warm-up request {number} of {WARM_UPS}", _prompt(attempt, -number), WARM_UP_SECONDS)


async def _measure(server: Completions, request: RunSmokeTest, attempt: str, samples: list[Sample]) -> None:
    words = _Words()
    async with watch_loop() as lag:
        for number in range(1, request.prompts + 1):
            samples.append(await _take_sample(server, lag, number, request.prompts, attempt))
            await words.say(_tell_progress(samples, request.prompts))


async def _take_sample(server: Completions, lag: LoopLag, number: int, prompts: int, attempt: str) -> Sample:
    lag.restart()
    sent_at, times = await _ask(server, f"prompt {number} of {prompts}", _prompt(attempt, number), PROMPT_SECONDS)
    return latency.measure(sent_at, times, lag.tell_lateness_ms)


async def _ask(server: Completions, what: str, prompt: str, seconds: float) -> tuple[float, TokenTimes]:
    try:
        return await server.stream(prompt, seconds)
    except SmokeTestFailed as error:
        raise SmokeTestFailed(f"{what} failed: {error}") from error
    except SmokeTestInconclusive as error:
        raise SmokeTestInconclusive(f"{what} says nothing: {error}") from error


def _prompt(attempt: str, number: int) -> str:
    """Give a prompt whose first words no other has: a cached prefix would answer too fast."""
    return f"{attempt} {number}: describe in as much detail as you can {_SUBJECTS[number % len(_SUBJECTS)]}."


def _tell_progress(samples: Sequence[Sample], prompts: int) -> str:
    report = latency.summarise(samples)
    tpot = "" if report.tpot_p50_ms is None else f", TPOT p50 {report.tpot_p50_ms:g} ms"
    return f"prompt {len(samples)} of {prompts}: TTFT p50 {report.ttft_p50_ms:g} ms{tpot}"


def _judge(request: RunSmokeTest, samples: Sequence[Sample]) -> SmokeReport:
    verdict = latency.judge(samples, request.ttft_budget_ms, request.tpot_budget_ms)
    if verdict.outcome is Outcome.FAIL:
        raise SmokeTestFailed(
            f"{verdict.message} ({len(samples)} prompts to {request.release}; raise the budget or use faster GPUs)"
        )
    if verdict.outcome is Outcome.INCONCLUSIVE:
        raise SmokeTestInconclusive(f"{verdict.message} ({len(samples)} prompts to {request.release})")
    return latency.summarise(samples)


class Smoke:
    """Activities of the smoke pool."""

    @implements(RUN_SMOKE_TEST)
    async def run_smoke_test(self, request: RunSmokeTest) -> SmokeReport:
        """Wait for the server, warm it up, stream the prompts one by one and judge the medians.

        Every attempt measures afresh, with prompts of its own.

        Raises:
            SmokeTestFailed: a prompt failed or a budget was exceeded; the message holds the numbers.
            SmokeTestInconclusive: the server was not reached, or this process was too slow to measure it.
        """
        samples: list[Sample] = []
        attempt = uuid4().hex[:12]
        async with (
            heartbeat(lambda: PromptsDone(prompts_done=len(samples), prompts=request.prompts)),
            open_completions(request.url, request.model) as server,
        ):
            await _await_server(server, request)
            await _warm_up(server, attempt)
            await _measure(server, request, attempt, samples)
        return _judge(request, samples)


@asynccontextmanager
async def open_pool(_: PoolSettings) -> AsyncIterator[Sequence[Callable[..., Any]]]:
    """Give the activities of the pool."""
    yield [Smoke().run_smoke_test]
