"""A random walk over several WorkflowRuns: edits, deletions, cancels, resets and kills, drawn from one seed."""

import asyncio
import random
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field

from plnt.clients.kube import WORKFLOW_RUNS
from plnt.errors import PlntError
from plnt.sandbox.cluster import ClusterUnprepared
from tests.chaos.kills import COMPONENTS, strike, upload
from tests.e2e.place import Place
from tests.e2e.scenario import Scenario

MODELS = {"good": {}, "other": {}, "third": {}, "slow": {"ttftMs": 900}, "late": {"loadSeconds": 3}}
"""Variants that the walk draws from; ``slow`` is over budget."""


@dataclass
class Walk:
    """One walk; the same seed gives the same moves, though not the same moments."""

    place: Place
    seed: int
    runs: int
    pause_seconds: float = 1.0
    """Longest time between two moves."""
    story: list[str] = field(default_factory=list)
    """What was done, for the reader of a failure."""
    _began: float = field(default_factory=time.monotonic)

    async def go(self, seconds: float) -> None:
        """Walk for a time."""
        numbers = random.Random(self.seed)
        uris = {name: await upload(self.place.sandbox, 2, **stub) for name, stub in MODELS.items()}
        moves: list[tuple[int, Callable[[random.Random, Scenario], Awaitable[str]]]] = [
            (10, lambda drawn, scenario: self._edit(drawn, scenario, uris)),
            (3, self._delete),
            (2, self._cancel),
            (2, self._reset),
            (1, self._terminate),
            (2, self._kill),
        ]
        weights, actions = [weight for weight, _ in moves], [action for _, action in moves]
        self._began = time.monotonic()
        while time.monotonic() - self._began < seconds:
            scenario = Scenario(self.place, f"walk-{numbers.randrange(self.runs)}")
            (action,) = numbers.choices(actions, weights)
            pause = numbers.uniform(0, self.pause_seconds)
            self._note(scenario, await self._try(action, numbers, scenario))
            await asyncio.sleep(pause)

    async def heal(self) -> None:
        """Bring every run that does not serve into a form that can, so that the end is not only failures."""
        uri = await upload(self.place.sandbox, 2)
        items, _ = await self.place.kube.list(WORKFLOW_RUNS, self.place.namespace)
        for item in items:
            if "deletionTimestamp" not in item["metadata"]:
                await Scenario(self.place, item["metadata"]["name"]).apply(uri)

    async def _try(
        self, action: Callable[[random.Random, Scenario], Awaitable[str]], numbers: random.Random, scenario: Scenario
    ) -> str:
        """A move that a server refuses or that finds nothing to move is part of the walk."""
        # A move draws from numbers of its own: what it finds must not change the moves that follow.
        drawn = random.Random(numbers.random())
        try:
            return await action(drawn, scenario)
        except (PlntError, ClusterUnprepared, AssertionError) as error:
            return f"refused: {error}"[:160]

    def _note(self, scenario: Scenario, said: str) -> None:
        self.story.append(f"{time.monotonic() - self._began:6.1f} s {scenario.name}: {said}")

    async def _edit(self, drawn: random.Random, scenario: Scenario, uris: dict[str, str]) -> str:
        variant = drawn.choice(list(MODELS))
        changes = {"canary": {"trafficPercent": drawn.choice([5, 50, 100])}}
        annotations = {"plnt.work/bake-seconds": str(drawn.randrange(3))}
        generation = await scenario.apply(uris[variant], annotations=annotations, **changes)
        return f"applied {variant} as generation {generation}"

    async def _delete(self, drawn: random.Random, scenario: Scenario) -> str:
        await scenario.kubectl("delete", "workflowrun", scenario.name, "--wait=false")
        return "deleted"

    async def _cancel(self, drawn: random.Random, scenario: Scenario) -> str:
        await scenario.temporal("workflow", "cancel")
        return "cancelled"

    async def _reset(self, drawn: random.Random, scenario: Scenario) -> str:
        runs = await scenario.runs()
        run = drawn.choice(runs) if runs else ""
        await scenario.temporal("workflow", "reset", "-r", run, "-t", "FirstWorkflowTask", "--reason", "walk")
        return f"reset {run}"

    async def _terminate(self, drawn: random.Random, scenario: Scenario) -> str:
        await scenario.temporal("workflow", "terminate", "--reason", "walk")
        return "terminated"

    async def _kill(self, drawn: random.Random, scenario: Scenario) -> str:
        component = drawn.choice(COMPONENTS)
        with suppress(PlntError):
            await strike(self.place.sandbox, component)
        return f"killed {component}"
