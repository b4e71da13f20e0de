"""The stub engines as processes, asked over HTTP."""

import asyncio
import itertools
import json
import os
import signal
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests.fakes.model_folder import write_model

ADDRESSES = itertools.count(1)
HOST_PORT = ("--host", "0.0.0.0", "--port", "8000")
COMMANDS = {
    "vllm": ["vllm", "serve", "{model}", *HOST_PORT, "--served-model-name", "m"],
    "sglang": ["python3", "-m", "sglang.launch_server", "--model-path", "{model}", *HOST_PORT, "--enable-metrics"],
    "tgi": ["text-generation-launcher", "--model-id", "{model}", "--port", "8000"],
    "trtllm": ["trtllm-serve", "{model}", *HOST_PORT],
}
QUICK = {"ttftMs": 5, "tpotMs": 1, "loadSeconds": 0}


@dataclass
class Running:
    process: asyncio.subprocess.Process
    url: str
    http: aiohttp.ClientSession

    async def stream(self, path: str = "/v1/chat/completions", **more: Any) -> tuple[int, str]:
        body = {"messages": [{"role": "user", "content": "hi"}], "prompt": "hi", "max_tokens": 5, "stream": True}
        async with self.http.post(self.url + path, json={**body, **more}) as response:
            return response.status, await response.text()

    async def get(self, path: str, **more: Any) -> tuple[int, str]:
        async with self.http.get(self.url + path, **more) as response:
            return response.status, await response.text()


def environment(address: str) -> dict[str, str]:
    return {**os.environ, "PLNT_STUB_LISTEN": address, "POD_NAME": "pod-1"}


@asynccontextmanager
async def engine(model: Path, *command: str, **more: str) -> AsyncIterator[Running]:
    address = f"127.99.{os.getpid() % 250}.{next(ADDRESSES)}"
    words = [word.format(model=model) for word in command]
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "plnt.sandbox.engine", *words),
        env={**environment(address), **more},
        stdout=asyncio.subprocess.DEVNULL,
    )
    try:
        async with aiohttp.ClientSession() as http, asyncio.timeout(60):
            running = Running(process, f"http://{address}:8000", http)
            await wait_listening(running)
            yield running
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def wait_listening(running: Running) -> None:
    while True:
        assert running.process.returncode is None
        try:
            await running.get("/v1/models")
        except aiohttp.ClientConnectorError:
            await asyncio.sleep(0.02)
        else:
            return


async def exit_of(*command: str, **more: str) -> tuple[int | None, str]:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "plnt.sandbox.engine", *command),
        env={**environment("127.99.0.1"), **more},
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
    )
    _, err = await asyncio.wait_for(process.communicate(), 60)
    return process.returncode, err.decode()


def chunks(text: str) -> list[dict[str, Any]]:
    lines = [line.removeprefix("data:").strip() for line in text.splitlines() if line.startswith("data:")]
    assert lines[-1] == "[DONE]"
    return [json.loads(line) for line in lines[:-1]]


@pytest.mark.parametrize(
    ("name", "first", "later", "usage"),
    [
        ("vllm", {"role": "assistant", "content": ""}, {"content"}, {}),
        (
            "sglang",
            {"role": "assistant", "content": "", "reasoning_content": None, "tool_calls": None},
            {"role", "content", "reasoning_content", "tool_calls"},
            {},
        ),
        ("tgi", None, {"role", "content"}, {"id": ""}),
        ("trtllm", {"role": "assistant"}, {"content", "reasoning_content"}, {}),
    ],
)
async def test_stream_has_the_shape_of_its_engine(
    tmp_path: Path, name: str, first: dict[str, Any] | None, later: set[str], usage: dict[str, Any]
) -> None:
    async with engine(write_model(tmp_path, **QUICK), *COMMANDS[name]) as running:
        status, text = await running.stream(stream_options={"include_usage": True})
        _, metrics = await running.get("/metrics")
    assert status == 200
    *answer, last = chunks(text)
    if first is not None:
        assert answer.pop(0)["choices"][0]["delta"] == first
    assert [set(chunk["choices"][0]["delta"]) for chunk in answer] == [later] * 5
    assert answer[-1]["choices"][0]["finish_reason"] == "length"
    assert last["choices"] == []
    assert last["usage"] == {"prompt_tokens": 1, "completion_tokens": 5, "total_tokens": 6}
    assert usage.items() <= last.items()
    assert (" \n\n" in text) is (name == "trtllm")
    own = {"vllm": "vllm:generation_tokens_total", "sglang": "sglang:realtime_tokens_total"}
    own |= {"tgi": "tgi_request_generated_tokens_sum", "trtllm": "numActiveRequests"}
    assert own[name] in metrics


async def test_answer_without_stream_and_of_text_completions(tmp_path: Path) -> None:
    async with engine(write_model(tmp_path, **QUICK), *COMMANDS["vllm"]) as running:
        _, whole = await running.stream(stream=False)
        _, text = await running.stream("/v1/completions")
        status, refused = await running.stream(model="other")
        async with running.http.get(running.url + "/health") as health:
            pod = health.headers["X-Plnt-Pod"]
    assert json.loads(whole)["usage"]["completion_tokens"] == 5
    assert all("text" in chunk["choices"][0] for chunk in chunks(text))
    assert (status, json.loads(refused)["error"]["code"]) == (404, 404)
    assert pod == "pod-1"


async def test_tokens_come_at_the_set_times(tmp_path: Path) -> None:
    async with engine(write_model(tmp_path, ttftMs=200, tpotMs=20, loadSeconds=0), *COMMANDS["vllm"]) as running:
        await running.stream()
        begun = time.monotonic()
        await running.stream(max_tokens=11)
        took = time.monotonic() - begun
    assert 0.4 <= took < 10


async def test_api_key_guards_completions_and_not_health(tmp_path: Path) -> None:
    async with engine(write_model(tmp_path, **QUICK), *COMMANDS["vllm"], VLLM_API_KEY="secret") as running:
        assert (await running.get("/v1/models"))[0] == 401
        assert (await running.get("/v1/models", headers={"Authorization": "Bearer secret"}))[0] == 200
        assert (await running.get("/health"))[0] == 200


async def test_faults_of_the_model_reach_the_client(tmp_path: Path) -> None:
    broken = write_model(tmp_path / "a", **QUICK, faults={"errorInBand": True, "http500Every": 2})
    mute = write_model(tmp_path / "b", **QUICK, faults={"noDone": True, "noUsage": True, "notReady": True})
    async with engine(broken, *COMMANDS["vllm"]) as running:
        status, text = await running.stream()
        assert status == 200
        assert "error" in chunks(text)[-1]
        assert (await running.stream())[0] == 500
    async with engine(mute, *COMMANDS["vllm"]) as running:
        _, text = await running.stream(stream_options={"include_usage": True})
        assert "[DONE]" not in text
        assert "usage" not in text
        assert (await running.get("/health"))[0] == 503


async def test_crash_comes_after_the_set_number_of_answers(tmp_path: Path) -> None:
    model = write_model(tmp_path, **QUICK, faults={"crashAfterRequests": 2, "exitCode": 139})
    async with engine(model, *COMMANDS["vllm"]) as running:
        for _ in range(2):
            assert "[DONE]" in (await running.stream())[1]
        assert await running.process.wait() == 139


@pytest.mark.parametrize(
    ("name", "more", "finished"),
    [("vllm", [], False), ("vllm", ["--shutdown-timeout", "5"], True), ("sglang", [], True), ("tgi", [], True)],
)
async def test_requests_in_flight_end_by_the_engines_rule(
    tmp_path: Path, name: str, more: list[str], finished: bool
) -> None:
    model = write_model(tmp_path, ttftMs=50, tpotMs=50, loadSeconds=0)
    async with engine(model, *COMMANDS[name], *more) as running:
        async with running.http.post(
            running.url + "/v1/chat/completions",
            json={"messages": [{"role": "user", "content": "hi"}], "max_tokens": 10, "stream": True},
        ) as response:
            first = await response.content.readline()
            assert first.startswith(b"data:")
            running.process.send_signal(signal.SIGTERM)
            try:
                rest = await response.text()
            except aiohttp.ClientPayloadError:
                rest = ""
        assert ("[DONE]" in rest) is finished
        assert await running.process.wait() == 0


async def test_wrong_start_ends_with_the_engines_exit_code(tmp_path: Path) -> None:
    model = str(write_model(tmp_path, **QUICK))
    failing = str(write_model(tmp_path / "failing", **QUICK, faults={"exitCode": 3}))
    (code, err), (absent, named), (many, gpus), (ordered, _) = await asyncio.gather(
        exit_of("vllm", "serve", model, "--no-such-flag"),
        exit_of("vllm", "serve", "/nowhere"),
        exit_of("vllm", "serve", model, "--tensor-parallel-size", "4", PLNT_STUB_GPUS="2"),
        exit_of("vllm", "serve", failing),
    )
    assert (code, "--no-such-flag" in err) == (2, True)
    assert (absent, "/nowhere" in named) == (1, True)
    assert (many, "available GPUs" in gpus) == (1, True)
    assert ordered == 3


async def test_each_load_is_counted(tmp_path: Path) -> None:
    loads = tmp_path / "loads.jsonl"
    async with engine(write_model(tmp_path / "m", **QUICK), *COMMANDS["vllm"], PLNT_STUB_LOADS=str(loads)):
        entries = [json.loads(line) for line in loads.read_text().splitlines()]
    assert [(entry["pod"], entry["model"]) for entry in entries] == [("pod-1", "m")]
