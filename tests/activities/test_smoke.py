"""The smoke test against a server that streams as the engines do."""

import asyncio
import re
import time
from collections.abc import Callable
from typing import Any

import pytest
from temporalio.testing import ActivityEnvironment

from activities.smoke import Smoke
from plnt.errors import SmokeTestFailed, SmokeTestInconclusive
from plnt.model.desired import Ref
from plnt.model.messages import RunSmokeTest, SmokeReport
from tests.fakes.completion_server import CompletionServer, Script, serve_completions

SLACK_MS = 500.0
"""How late a busy machine may make a server's token, in milliseconds."""


def _request(url: str, **changes: Any) -> RunSmokeTest:
    known: dict[str, Any] = {
        "ref": Ref(namespace="default", name="llama"),
        "release": "llama-0a1b2c3d",
        "url": url,
        "model": "meta-llama/Llama-3.1-70B-Instruct",
        "prompts": 2,
        "ttft_budget_ms": None,
        "tpot_budget_ms": None,
        "wait_seconds": 5.0,
    }
    return RunSmokeTest.model_validate(known | changes)


async def _run(request: RunSmokeTest, beats: Callable[..., None] | None = None) -> SmokeReport:
    environment = ActivityEnvironment()
    if beats is not None:
        environment.on_heartbeat = beats
    return await environment.run(Smoke().run_smoke_test, request)


async def _measure(script: Script, **changes: Any) -> tuple[SmokeReport, CompletionServer]:
    async with serve_completions(script) as server:
        return await _run(_request(server.url, **changes)), server


async def _fail(script: Script, **changes: Any) -> str:
    with pytest.raises(SmokeTestFailed) as caught:
        await _measure(script, **changes)
    return str(caught.value)


@pytest.mark.parametrize(
    ("script", "ttft_ms", "tpot_ms"),
    [
        pytest.param(Script(ttft=0.06, tpot=0.006), 60, 6, id="role-only chunk first"),
        pytest.param(
            Script(ttft=0.06, tpot=0.006, comments=True, unknown_events=True), 60, 6, id="comments and events"
        ),
        pytest.param(Script(ttft=0.06, tpot=0.006, line_end="\r\n"), 60, 6, id="CRLF"),
        pytest.param(Script(ttft=0.06, tpot=0.006, reasoning_tokens=2), 60, 6, id="reasoning_content first"),
        pytest.param(Script(ttft=0.06, tpot=0.006, field="reasoning_content"), 60, 6, id="reasoning_content alone"),
        pytest.param(Script(ttft=0.06, tpot=0.006, field="reasoning"), 60, 6, id="reasoning alone"),
        pytest.param(Script(ttft=0.06, tpot=0.006, empty_chunk_after=0.02), 60, 6, id="empty delta first"),
        pytest.param(Script(ttft=0.06, tpot=0.01, per_chunk=10), 60, 10, id="ten tokens a chunk"),
        pytest.param(Script(ttft=0.06, tpot=0.006, running_usage=False), 60, 6, id="usage at the end alone"),
        pytest.param(Script(ttft=0.06, tpot=0.006, usage=False), 60, 6, id="running usage alone"),
        pytest.param(Script(ttft=0.06, tpot=0.006, piece_bytes=7), 60, 6, id="events cut into pieces"),
    ],
)
async def test_smoke_test_measures_what_the_server_did(script: Script, ttft_ms: float, tpot_ms: float) -> None:
    report, _ = await _measure(script)
    assert ttft_ms - 1 <= report.ttft_p50_ms <= ttft_ms + SLACK_MS
    assert report.tpot_p50_ms is not None
    assert tpot_ms * 0.9 <= report.tpot_p50_ms <= tpot_ms + SLACK_MS / 3
    assert report.prompts == 2
    assert report.ttft_p90_ms >= report.ttft_p50_ms


async def test_smoke_test_asks_as_the_engines_expect() -> None:
    report, server = await _measure(Script(), prompts=5)
    paths = {path for path, _ in server.requests}
    bodies = [body for _, body in server.requests]
    prompts = [body["messages"][0]["content"] for body in bodies]
    assert report.prompts == 5
    assert paths == {"/v1/chat/completions"}
    assert len(bodies) == 7, "two warm-up requests and five measured ones"
    assert len({prompt[:15] for prompt in prompts}) == 7, "no two prompts start alike"
    assert server.most_at_once == 1
    assert len(server.peers) == 1, "one connection"
    assert {body["model"] for body in bodies} == {"meta-llama/Llama-3.1-70B-Instruct"}
    assert all(body["stream"] and body["stream_options"]["include_usage"] for body in bodies)
    assert all(body["temperature"] == 0 and 16 <= body["max_tokens"] <= 64 for body in bodies)


async def test_smoke_test_uses_new_prompts_when_run_again() -> None:
    async with serve_completions(Script()) as server:
        await _run(_request(server.url))
        await _run(_request(server.url))
        prompts = [body["messages"][0]["content"] for _, body in server.requests]
    assert len(set(prompts)) == len(prompts) == 8


async def test_warm_up_is_not_counted() -> None:
    async with serve_completions(Script(ttft=2)) as server:
        task = asyncio.create_task(_run(_request(server.url)))
        await server.wait_for_requests(2)
        server.script.ttft = 0.02
        report = await task
    assert report.ttft_p90_ms < 1500


@pytest.mark.parametrize(
    ("status", "words"),
    [
        pytest.param(404, "Not Found", id="no chat route"),
        pytest.param(400, "you must provide a chat template", id="no chat template"),
        pytest.param(422, "Template error: template not found", id="no chat template, TGI"),
    ],
)
async def test_smoke_test_falls_back_to_plain_completions(status: int, words: str) -> None:
    report, server = await _measure(Script(chat_status=status, chat_words=words))
    assert [path for path, _ in server.requests] == ["/v1/chat/completions"] + ["/v1/completions"] * 4
    assert all("prompt" in body for path, body in server.requests if path == "/v1/completions")
    assert report.tpot_p50_ms is not None


@pytest.mark.parametrize(
    ("script", "said"),
    [
        pytest.param(Script(error_after=5), "the engine is out of memory", id="error after content"),
        pytest.param(Script(error_after=0), "the engine is out of memory", id="error at once"),
        pytest.param(Script(done=False), "without [DONE]", id="no DONE"),
        pytest.param(Script(cut_after=5, done=False), "without [DONE]", id="cut off"),
        pytest.param(Script(tokens=0), "without a single token", id="empty stream"),
        pytest.param(Script(finish_reason="abort"), "finish_reason abort", id="aborted"),
        pytest.param(Script(garbage=True), "no chunk of a completion", id="no JSON"),
        pytest.param(Script(status=500), "answered 500: the engine is out of memory", id="500"),
        pytest.param(
            Script(status=404, words="The model `m` does not exist."), "`m` does not exist", id="unknown model"
        ),
        pytest.param(
            Script(chat_status=400, chat_words="bad max_tokens"), "400: bad max_tokens", id="400 of another kind"
        ),
    ],
)
async def test_smoke_test_fails_in_the_servers_words(script: Script, said: str) -> None:
    assert said in await _fail(script)


async def test_smoke_test_fails_naming_the_prompt() -> None:
    text = await _fail(Script(status=503, fail_from=5, words="queue full", echo_prompt=True), prompts=4)
    assert text.startswith("prompt 3 of 4 failed: ")
    assert "503: queue full" in text
    assert "describe" not in text, "the prompt stays out of messages"


async def test_smoke_test_fails_over_its_ttft_budget_with_both_numbers() -> None:
    text = await _fail(Script(ttft=0.5), ttft_budget_ms=50)
    assert re.match(r"TTFT p50 \d{3,}\.\d ms", text)
    assert "is over spec.canary.smokeTest.ttftBudgetMs 50 ms" in text
    assert "TPOT" not in text


async def test_smoke_test_fails_over_both_budgets_with_all_numbers() -> None:
    text = await _fail(Script(ttft=0.5, tpot=0.2, tokens=4), ttft_budget_ms=50, tpot_budget_ms=10)
    assert re.search(r"ttftBudgetMs 50 ms; TPOT p50 \d{3,}(\.\d)? ms", text)
    assert "is over spec.canary.smokeTest.tpotBudgetMs 10 ms" in text


async def test_smoke_test_passes_within_its_budgets() -> None:
    report, _ = await _measure(Script(), ttft_budget_ms=5000, tpot_budget_ms=2000)
    assert report.ttft_p50_ms < 5000


@pytest.mark.parametrize(
    "script",
    [
        pytest.param(Script(usage=False, running_usage=False), id="no usage"),
        pytest.param(Script(tokens=1), id="one token"),
        pytest.param(Script(per_chunk=20), id="all tokens in one chunk"),
    ],
)
async def test_smoke_test_fails_a_tpot_budget_that_it_cannot_measure(script: Script) -> None:
    text = await _fail(script, tpot_budget_ms=1000)
    assert "TPOT could not be measured against spec.canary.smokeTest.tpotBudgetMs 1000 ms" in text
    report, _ = await _measure(script)
    assert report.tpot_p50_ms is None


async def test_smoke_test_waits_until_the_server_is_reached() -> None:
    report, server = await _measure(Script(models_after=3))
    assert server.models_asked == 4
    assert report.prompts == 2


async def test_smoke_test_is_inconclusive_when_the_server_is_not_reached() -> None:
    with pytest.raises(SmokeTestInconclusive, match=r"did not answer 200 within 2 s.*no healthy upstream"):
        await _measure(Script(models_after=1000), wait_seconds=2)


async def test_smoke_test_is_inconclusive_when_nothing_listens() -> None:
    async with serve_completions(Script()) as server:
        url = server.url
    with pytest.raises(SmokeTestInconclusive, match="did not answer 200"):
        await _run(_request(url, wait_seconds=0.2))


async def test_smoke_test_is_inconclusive_when_its_proxy_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    async with serve_completions(Script(ttft=0.05)) as server:
        task = asyncio.create_task(_run(_request(server.url)))
        await server.wait_for_requests(1)
        # Nothing listens on port 1; a closed connection makes the next request use the proxy.
        monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
        with pytest.raises(SmokeTestInconclusive, match="says nothing"):
            await task


async def test_smoke_test_reaches_the_server_through_a_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    async with serve_completions(Script()) as server:
        monkeypatch.setenv("HTTP_PROXY", server.url)
        report = await _run(_request("http://llama-0a1b2c3d.default.svc.cluster.local:8000"))
    assert report.prompts == 2


async def test_smoke_test_is_inconclusive_when_its_own_loop_is_late() -> None:
    async with serve_completions(Script(ttft=0.02)) as server:
        task = asyncio.create_task(_run(_request(server.url, ttft_budget_ms=150)))
        while not task.done():
            if len(server.requests) > 2:
                time.sleep(0.3)  # noqa: ASYNC251
            await asyncio.sleep(0.01)
        with pytest.raises(SmokeTestInconclusive, match="event loop was up to"):
            await task


async def test_smoke_test_heartbeats_how_far_it_is() -> None:
    beats: list[Any] = []
    async with serve_completions(Script()) as server:
        await _run(_request(server.url), lambda *details: beats.extend(details))
    assert beats[0].prompts == 2


async def test_smoke_test_stops_when_cancelled() -> None:
    environment = ActivityEnvironment()
    async with serve_completions(Script(ttft=10)) as server:
        task = asyncio.ensure_future(environment.run(Smoke().run_smoke_test, _request(server.url)))
        await server.wait_for_requests(1)
        environment.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
