"""Kills of processes at moments of a rollout, and how the rollout has to end all the same."""

import asyncio
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import count

from plnt.clients.kube import Object
from plnt.errors import PlntError
from plnt.model.status import TERMINAL_PHASES, Phase
from plnt.sandbox.model_files import ModelFolder
from plnt.sandbox.product import PRODUCT
from plnt.sandbox.running import Sandbox
from plnt.sandbox.seed import seed_model
from tests.chaos.world import wait_settled
from tests.e2e.models import BUCKET, FAST, MIB
from tests.e2e.place import Place
from tests.e2e.scenario import Scenario

SERVERS = ("temporal", "kube-apiserver", "etcd")
COMPONENTS = (*PRODUCT, *SERVERS)
UNDO = "undo"
MOMENTS = (*(phase.value for phase in list(Phase)[:6]), UNDO)
"""The six active phases and the undo."""
DOWN_SECONDS = 2.0
"""Time for which a killed server stays away."""
END_SECONDS = 150.0
"""Longest time from a kill to the right end: the longest back-off of a poll is 30 s."""
PULL_BYTES_PER_SECOND = 16_000_000
SETTINGS = {
    "PLNT_PULL_BYTES_PER_SECOND": str(PULL_BYTES_PER_SECOND),
    "PLNT_RESYNC_SECONDS": "5",
    "PLNT_BAKE_SECONDS": "2",
}
"""A pull has a middle, and lost work is looked for soon."""
_SEEDS = count(100)


@dataclass(frozen=True)
class Cell:
    """``component`` is killed when the status first shows ``moment``."""

    component: str
    moment: str

    def __str__(self) -> str:
        return f"{self.component}-{self.moment}"


@dataclass
class Result:
    """How a cell ended."""

    cell: Cell
    seconds: float
    fault: str = ""


@dataclass
class Subject:
    """A WorkflowRun that serves, rolled on from cell to cell."""

    scenario: Scenario
    serving: set[str] = field(default_factory=set)

    @property
    def place(self) -> Place:
        return self.scenario.place


async def upload(sandbox: Sandbox, megabytes: int, **stub: object) -> str:
    """Upload a model that no other has bytes in common with, so that it is pulled; gives its location."""
    seed = next(_SEEDS)
    folder = ModelFolder(megabytes * MIB, 2, seed=seed, stub={**FAST, **stub})
    await seed_model(sandbox.site.s3, BUCKET, f"chaos/{seed}", folder)
    return f"s3://{BUCKET}/chaos/{seed}"


async def serve_first(place: Place, name: str = "model") -> Subject:
    """Bring a first generation to Ready."""
    scenario = Scenario(place, name)
    await scenario.apply(await upload(place.sandbox, 2))
    await scenario.wait_phase(Phase.READY, 1)
    return Subject(scenario, await scenario.releases())


async def strike(sandbox: Sandbox, component: str, down_seconds: float = DOWN_SECONDS) -> None:
    """Kill a component with SIGKILL; the product's own are restarted by their supervisor, servers here."""
    if component in PRODUCT:
        sandbox.supervisor.kill(component, signal.SIGKILL)
        return
    await sandbox.supervisor.stop(component, signal.SIGKILL)
    await asyncio.sleep(down_seconds)
    sandbox.supervisor.resume(component)
    await sandbox.supervisor.wait_ready([component], 60)


async def play(subject: Subject, cell: Cell) -> None:
    """Roll the next generation out, kill, and wait for the right end in a world that equals the WorkflowRuns."""
    scenario, undone = subject.scenario, cell.moment == UNDO
    stub = {"ttftMs": 900} if undone else {}
    uri = await upload(subject.place.sandbox, 24 if cell.moment == Phase.PULLING_WEIGHTS else 2, **stub)
    async with scenario.recorded():
        generation = await scenario.apply(uri)
        await wait_moment(scenario, generation, cell.moment)
    await strike(subject.place.sandbox, cell.component)
    await wait_end(scenario, Phase.ROLLED_BACK if undone else Phase.READY, generation)
    await wait_settled(subject.place, END_SECONDS)
    releases = await scenario.releases()
    assert (releases == subject.serving) is undone, f"{releases} serve, before {subject.serving}"
    subject.serving = releases


async def wait_moment(scenario: Scenario, generation: int, moment: str) -> None:
    """Wait until the recorded status shows the moment; fails when it is past it without having shown it."""

    async def look() -> str:
        return show_moment(scenario, generation, moment)

    shown = await scenario.wait_for(look, bool, f"{moment} of generation {generation}", END_SECONDS)
    assert shown == moment, f"generation {generation} is in {shown} and was never shown in {moment}"


def show_moment(scenario: Scenario, generation: int, moment: str) -> str:
    """Give ``moment`` if a recorded status shows it, the phase that is past it, or nothing yet."""
    phases = [phase.value for phase in Phase]
    statuses = [version.get("status", {}) for version in scenario.seen]
    own = [status for status in statuses if status.get("observedGeneration") == generation]
    if moment == UNDO:
        undoing = any(one["reason"] == "Undoing" for status in own for one in status.get("conditions", []))
        return UNDO if undoing else next((s["phase"] for s in own if s["phase"] in TERMINAL_PHASES), "")
    if any(status["phase"] == moment for status in own):
        return moment
    return next((s["phase"] for s in own if phases.index(s["phase"]) > phases.index(moment)), "")


async def wait_end(scenario: Scenario, phase: Phase, generation: int, seconds: float = END_SECONDS) -> None:
    """Wait until the generation ends in ``phase``."""
    await wait_status(
        scenario,
        lambda status: status.get("observedGeneration") == generation and status.get("phase") == phase,
        seconds,
        f"{phase} of generation {generation}",
    )


async def wait_status(scenario: Scenario, holds: Callable[[Object], bool], seconds: float, what: str) -> None:
    """Wait for a status, through outages of the API server."""
    deadline = time.monotonic() + seconds
    status: Object = {}
    while True:
        with suppress(PlntError):
            status = await scenario.status()
            if holds(status):
                return
        assert time.monotonic() < deadline, f"no {what} within {seconds:.0f} s, but {status}"
        await asyncio.sleep(0.2)


async def try_cell(subject: Subject, cell: Cell) -> Result:
    """Play a cell and note its fault instead of failing."""
    began = time.monotonic()
    try:
        await play(subject, cell)
    except (AssertionError, PlntError, TimeoutError) as error:
        await _keep_history(subject.scenario, cell)
        return Result(cell, time.monotonic() - began, f"{type(error).__name__}: {error}"[:600])
    return Result(cell, time.monotonic() - began)


async def _keep_history(scenario: Scenario, cell: Cell) -> None:
    """Write the newest run's history beside the logs, for the reader of a failed cell."""
    with suppress(AssertionError):
        history = await scenario.temporal("workflow", "show", "-o", "json")
        (scenario.place.sandbox.state.root / f"failed-{cell}.json").write_text(history)


def render_table(results: list[Result]) -> str:
    """Give the matrix as text: seconds to the right end, or FAILED."""
    found = {(result.cell.component, result.cell.moment): result for result in results}
    lines = ["".join(f"{word:>16}" for word in ("killed in", *MOMENTS))]
    for component in COMPONENTS:
        cells = [found.get((component, moment)) for moment in MOMENTS]
        words = ["-" if one is None else "FAILED" if one.fault else f"{one.seconds:.1f} s" for one in cells]
        lines.append("".join(f"{word:>16}" for word in (component, *words)))
    return "\n".join([*lines, *(f"{one.cell}: {one.fault}" for one in results if one.fault)])
