"""The commands of README and operations, word for word, by somebody who follows them."""

import asyncio
import os
import signal
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
import yaml

from plnt.clients.kube import WORKFLOW_RUNS, Kube
from plnt.model import names
from plnt.model.status import TERMINAL_PHASES, Phase
from plnt.sandbox.cluster import open_kube
from plnt.sandbox.programs import Programs
from plnt.sandbox.running import Sandbox
from plnt.sandbox.waiting import wait_until
from tests.docs.shown import BIN, ROOT, pick, type_command

README, OPERATIONS = "README.md", "docs/operations.md"
EXAMPLE = yaml.safe_load((ROOT / "examples" / "llama-3.1-70b-instruct.yaml").read_text())
NAME = EXAMPLE["metadata"]["name"]
STAND_INS = {"NAMESPACE": "default", "NS": "default", "NAME": NAME}
DEADLINE_SECONDS = 90.0


class Reader:
    """Somebody at a shell with the variables that ``plnt up`` prints."""

    def __init__(self, sandbox: Sandbox, kube: Kube) -> None:
        self.sandbox = sandbox
        self.kube = kube

    async def type(self, document: str, start: str) -> str:
        """Type the command of a document that begins like this."""
        stand_ins = {**STAND_INS, "DIR": str(self.sandbox.state.cache)}
        return await type_command(pick(document, start), stand_ins, self.sandbox.environment)

    async def count(self, query: str) -> int:
        client = await self.sandbox.connect_temporal()
        return (await client.count_workflows(query)).count

    async def wait_settled(self, *phases: Phase, other_than: str = "") -> str:
        """Wait until the example is in one of ``phases`` and no run is open; gives the newest run's ID."""
        status = {}

        async def is_settled() -> bool:
            found = (await self.kube.get(WORKFLOW_RUNS, "default", NAME)).get("status", {})
            status.update(found)
            running = await self.count(
                f"WorkflowId = '{names.rollout_id('default', NAME)}' AND ExecutionStatus = 'Running'"
            )
            ended = found.get("phase") in TERMINAL_PHASES and running == 0
            return ended and found.get("workflowRunId", other_than) != other_than

        await wait_until(is_settled, DEADLINE_SECONDS)
        assert status["phase"] in phases, status.get("lastError")
        return str(status["workflowRunId"])


def test_readme_shows_the_example_as_it_is() -> None:
    (block,) = (text for text in (ROOT / README).read_text().split("```") if text.startswith("yaml\n"))
    shown = yaml.safe_load(block.removeprefix("yaml\n"))
    assert _is_part(shown, EXAMPLE)


def _is_part(part: object, whole: object) -> bool:
    if isinstance(part, dict) and isinstance(whole, dict):
        return all(_is_part(value, whole.get(key)) for key, value in part.items())
    return part == whole


async def test_shown_commands_take_the_example_to_ready_and_steer_it(sandbox: Sandbox) -> None:
    async with open_kube(sandbox.kubeconfig) as kube:
        reader = Reader(sandbox, kube)
        await reader.type(README, "kubectl apply")
        await reader.type(README, "kubectl wait")
        assert "Ready" in await reader.type(README, "kubectl get")
        first = await reader.wait_settled(Phase.READY)
        assert "COMPLETED" in (await reader.type(README, "temporal workflow describe")).upper()
        await _look_after(reader)
        await reader.type(OPERATIONS, "temporal workflow reset")
        await reader.type(OPERATIONS, "temporal workflow signal")
        second = await reader.wait_settled(Phase.READY, other_than=first)
        await reader.type(README, "temporal workflow reset")
        await reader.type(README, "temporal workflow cancel")
        await reader.wait_settled(Phase.READY, Phase.ROLLED_BACK, other_than=second)
        for query in ("PlntPhase", "PlntGpuClass", "TemporalReportedProblems"):
            await reader.type(OPERATIONS, f"temporal workflow list -q {query}")
        await sandbox.kubectl("delete", "workflowrun", NAME, "--timeout=60s")


async def _look_after(reader: Reader) -> None:
    """Let the janitor look at the release that serves, then do by hand what it does in the cache."""
    done = "WorkflowType = 'Janitor' AND ExecutionStatus = 'Completed'"
    before = await reader.count(done)
    await reader.type(OPERATIONS, "temporal schedule toggle --pause")
    await reader.type(OPERATIONS, "temporal schedule toggle --unpause")
    await reader.type(OPERATIONS, "temporal schedule trigger")

    async def is_done() -> bool:
        return await reader.count(done) > before

    await wait_until(is_done, DEADLINE_SECONDS)
    assert "in use" in (await reader.type(OPERATIONS, "plnt cache ls")).lower()
    for verb in ("verify", "gc"):
        await reader.type(OPERATIONS, f"plnt cache {verb}")


@pytest.mark.extended
async def test_sandbox_of_a_killed_terminal_is_stopped_by_the_shown_command(tmp_path: Path, programs: Programs) -> None:
    environment = {"XDG_STATE_HOME": str(tmp_path)}
    up = pick(README, ".venv/bin/plnt up")
    process = await asyncio.create_subprocess_exec(
        *(str(BIN / "plnt"), *up.words[1:]),
        env={**os.environ, **environment},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
        start_new_session=True,
    )
    assert process.stdout is not None
    try:
        async with asyncio.timeout(120):
            while "Web UI" not in (line := (await process.stdout.readline()).decode()):
                assert line, "plnt up ended"
        assert "kube-apiserver" in await type_command(pick(README, ".venv/bin/plnt status"), {}, environment)
    finally:
        with suppress(ProcessLookupError):
            process.send_signal(signal.SIGKILL)
        await process.wait()
        said = await type_command(pick(README, ".venv/bin/plnt down"), {}, environment)
    assert "kube-apiserver" in said
    assert [
        one for one in psutil.process_iter(["cmdline"]) if str(tmp_path) in " ".join(one.info["cmdline"] or [])
    ] == []
