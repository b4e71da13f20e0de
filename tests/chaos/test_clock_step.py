"""A worker's clock that steps by an hour in the middle of its work.

Needs Linux on x86-64: the clock is faked by the library inside the wheel ``libfaketime``, of the development group.
"""

import time
from collections.abc import AsyncIterator
from importlib.util import find_spec
from pathlib import Path

import pytest

from plnt.model.status import Phase
from plnt.sandbox.cluster import open_kube
from plnt.sandbox.product import PRODUCT
from plnt.sandbox.programs import Programs
from plnt.sandbox.running import Sandbox, running_sandbox
from tests.chaos.kills import SETTINGS, serve_first, upload, wait_end, wait_moment
from tests.chaos.world import wait_settled
from tests.e2e.place import make_place

LIBRARY = Path("vendor", "libfaketime", "src", "libfaketime.so.1")
"""Path inside the wheel."""
BAKE_SECONDS = 8
STRUCK = {
    "control": Phase.VALIDATING,
    "weights": Phase.PULLING_WEIGHTS,
    "gpu": Phase.DEPLOYING,
    "deploy": Phase.SMOKE_TESTING,
    "smoke": Phase.SMOKE_TESTING,
    "bridge": Phase.SMOKE_TESTING,
    "promote": Phase.PROMOTING,
}
"""When each process's clock steps."""
ONLY_FORWARD = {"weights"}
"""S3 servers refuse what was signed an hour ago: a pull with such a clock fails, and no retry helps."""


@pytest.fixture
def clocks(tmp_path: Path) -> dict[str, Path]:
    """One file a process: what it says is added to that process's clock at its next look."""
    files = {name: tmp_path / f"{name}.clock" for name in PRODUCT}
    for file in files.values():
        file.write_text("+0\n")
    return files


def fake_clock(file: Path) -> dict[str, str]:
    """Give the variables of a process whose wall clock follows a file; time spans are left true, as on a real step."""
    wheel = find_spec("libfaketime")
    assert wheel is not None, "this test needs the wheel libfaketime: run `make setup` on Linux on x86-64"
    assert wheel.origin is not None
    return {
        "LD_PRELOAD": str(Path(wheel.origin).parent / LIBRARY),
        "FAKETIME_TIMESTAMP_FILE": str(file),
        "FAKETIME_NO_CACHE": "1",
        "DONT_FAKE_MONOTONIC": "1",
    }


@pytest.fixture
async def odd_sandbox(tmp_path: Path, programs: Programs, clocks: dict[str, Path]) -> AsyncIterator[Sandbox]:
    """A sandbox whose processes each have a clock of their own."""
    async with running_sandbox(tmp_path / "sandbox", programs, overrides=SETTINGS) as running:
        for name in PRODUCT:
            await running.supervisor.stop(name)
            running.supervisor.resume(name, fake_clock(clocks[name]))
        await running.wait_polling()
        yield running


@pytest.mark.parametrize("step", ["+1h", "-1h"])
async def test_rollout_goes_on_when_every_workers_clock_steps_by_an_hour_amid_its_work(
    odd_sandbox: Sandbox, clocks: dict[str, Path], step: str
) -> None:
    async with open_kube(odd_sandbox.kubeconfig) as kube:
        place = await make_place(odd_sandbox, kube, f"clock{step}")
        scenario = (await serve_first(place)).scenario
        shown: dict[Phase, float] = {}
        uri = await upload(odd_sandbox, 48)
        async with scenario.recorded():
            generation = await scenario.apply(uri, annotations={"plnt.work/bake-seconds": str(BAKE_SECONDS)})
            for name, moment in STRUCK.items():
                await wait_moment(scenario, generation, moment)
                shown.setdefault(moment, time.monotonic())
                if step == "+1h" or name not in ONLY_FORWARD:
                    clocks[name].write_text(f"{step}\n")
        await wait_end(scenario, Phase.READY, generation)
        await wait_settled(place)
        (release,) = await scenario.releases()
        logs = await scenario.kubectl("logs", "--selector", f"app.kubernetes.io/instance={release}", "--tail=-1")
    assert logs.count("model loaded") == 1
    assert len(await scenario.runs()) == 2
    assert shown[Phase.PROMOTING] - shown[Phase.SMOKE_TESTING] >= BAKE_SECONDS
