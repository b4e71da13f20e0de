"""Runs that settled early in the session, so that later tests can see that nobody touched them since."""

import time
from dataclasses import dataclass, field

from plnt.model.status import Phase
from tests.e2e.models import Models
from tests.e2e.place import Place
from tests.e2e.scenario import Scenario


@dataclass
class Settled:
    """One Ready and one RolledBack WorkflowRun, the runs that each had, and since when (monotonic, seconds)."""

    ready: Scenario
    undone: Scenario
    runs: list[list[str]] = field(default_factory=list)
    since: float = 0.0

    async def list_runs(self) -> list[list[str]]:
        """Give the run IDs of both, as they are now."""
        return [await self.ready.runs(), await self.undone.runs()]


async def settle_two(place: Place, models: Models) -> Settled:
    """Let one run end Ready and one RolledBack."""
    settled = Settled(Scenario(place, "ready"), Scenario(place, "undone"))
    await settled.ready.apply(await models.uri("good"))
    await settled.undone.apply(await models.uri("slow", ttftMs=700))
    await settled.ready.wait_phase(Phase.READY, 1)
    await settled.undone.wait_phase(Phase.ROLLED_BACK, 1)
    settled.runs = await settled.list_runs()
    settled.since = time.monotonic()
    return settled
