"""``plnt demo`` as a newcomer runs it, and as it ends when something is wrong."""

import asyncio
import os
import re
import sys
from pathlib import Path

from plnt.model.status import Phase
from plnt.sandbox.programs import Programs

ROOT = Path(__file__).parents[2]


async def run_demo(state: Path, *arguments: str) -> tuple[int | None, str]:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "plnt.cli", "demo", "--state", str(state), *arguments),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        cwd=ROOT,
        env=dict(os.environ),
    )
    out, _ = await process.communicate()
    return process.returncode, out.decode()


async def test_demo_shows_the_way_from_apply_to_a_streamed_answer(tmp_path: Path, programs: Programs) -> None:
    status, said = await run_demo(tmp_path)
    assert status == 0, said
    for phase in (*list(Phase)[:6], Phase.READY):
        assert re.search(rf"^{phase} +[\d.]+ s", said, re.MULTILINE), f"{phase} is not shown:\n{said}"
    assert "workflowruns.plnt.work unchanged" in said
    assert re.search(r"TTFT p50 [\d.]+ ms .*TPOT p50 [\d.]+ ms", said)
    assert re.search(r"^llama-3.1-70b-instruct +vllm +nvidia.com/h100 +Ready +http://", said, re.MULTILINE)
    assert re.search(r"^\(\d+ pieces in [\d.]+ s\)$", said, re.MULTILINE)
    assert re.search(r"Web UI: http://127.0.0.1:\d+/namespaces/default/workflows/rollout\.default\.llama", said)


async def test_demo_with_a_wrong_setting_names_component_and_setting(tmp_path: Path, programs: Programs) -> None:
    status, said = await run_demo(tmp_path, "--set", "PLNT_PROVIDER=carrier-pigeon")
    assert status == 1
    assert "plnt demo: bridge keeps ending" in said
    assert "PLNT_PROVIDER" in said
    assert "what to do" in said
