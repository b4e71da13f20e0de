"""Random walks: whatever was done, the world settles and equals what the WorkflowRuns say."""

import os

import pytest

from tests.chaos.walk import Walk
from tests.chaos.world import wait_settled
from tests.e2e.place import Place

MINUTES = float(os.environ.get("CHAOS_MINUTES", "10"))
RUNS = int(os.environ.get("CHAOS_RUNS", "20"))
SEEDS = [int(seed) for seed in os.environ.get("CHAOS_SEEDS", "1").split(",")]
"""Seeds of the walks; one that failed once stays here."""
SETTLE_SECONDS = 400.0


@pytest.mark.parametrize("seed", SEEDS)
async def test_world_equals_the_workflow_runs_after_a_random_walk(
    tough_place: Place, seed: int, capsys: pytest.CaptureFixture[str]
) -> None:
    # Room for every run twice, canary and stable: the line is tested elsewhere.
    for number in range(2 * RUNS // 8 + 1):
        tough_place.add_node(f"walk-{number}", 8)
    walk = Walk(tough_place, seed, RUNS)
    try:
        await walk.go(MINUTES * 60)
        await wait_settled(tough_place, SETTLE_SECONDS)
        await walk.heal()
        world = await wait_settled(tough_place, SETTLE_SECONDS)
    except BaseException:
        with capsys.disabled():
            print("\n".join([f"seed {seed}", *walk.story]), flush=True)
        raise
    assert {run["status"]["phase"] for run in world.runs.values()} <= {"Ready"}
