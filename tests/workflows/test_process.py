"""The workflow worker as a process."""

import asyncio
import os
import signal
import socket
import sys
from pathlib import Path

import aiohttp
import pytest

from tests.fakes.rollouts import Rollouts

pytestmark = pytest.mark.timeout(120)

ROOT = Path(__file__).parents[2]


async def start(**settings: str) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "workflows",
        cwd=ROOT,
        env={**os.environ, **settings},
        stderr=asyncio.subprocess.PIPE,
    )


def choose_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


async def wait_ready(port: int) -> None:
    async with aiohttp.ClientSession() as session, asyncio.timeout(60):
        while True:
            try:
                async with session.get(f"http://127.0.0.1:{port}/readyz") as answer:
                    if answer.status == 200:
                        return
            except aiohttp.ClientError:
                pass
            await asyncio.sleep(0.1)


async def test_wrong_setting_is_named_and_ends_the_process() -> None:
    process = await start(PLNT_WORKFLOW_SLOTS="none")
    _, errors = await process.communicate()
    assert process.returncode == 2
    assert "PLNT_WORKFLOW_SLOTS" in errors.decode()


async def test_sigterm_ends_a_serving_process_in_order(rollouts: Rollouts) -> None:
    port = choose_port()
    address = rollouts.client.service_client.config.target_host
    process = await start(TEMPORAL_ADDRESS=address, PLNT_HEALTH_PORT=str(port))
    try:
        await wait_ready(port)
        process.send_signal(signal.SIGTERM)
        _, errors = await asyncio.wait_for(process.communicate(), 60)
    finally:
        if process.returncode is None:
            process.kill()
    assert process.returncode == 0, errors.decode()
