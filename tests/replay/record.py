"""``python -m tests.replay.record``: write the histories that workflow code must be able to replay.

Run it when the order of commands changed on purpose, and say so in the change; runs that are open during such an
upgrade need ``workflow.patched``.
"""

import asyncio
import gc
import json
import socket
from pathlib import Path
from typing import Any

from plnt.errors import SmokeTestFailed
from plnt.model.desired import Desired, Policy
from plnt.model.options import Options
from tests.fakes.rollouts import Rollouts, running_rollouts
from tests.fakes.steps import Fault, make_desired, make_spec, serving_world
from tests.replay.commands import BASELINE, read_commands

FOLDER = Path(__file__).parent / "histories"
NEXT_MODEL = make_spec(model__storageUri="s3://models/next", replicas__min=2)


async def play_first(rollouts: Rollouts, name: str) -> None:
    """A first rollout to Ready."""
    await rollouts.roll_out(name)


async def play_promoted(rollouts: Rollouts, name: str) -> None:
    """A second generation that is baked and promoted."""
    rollouts.fakes.worlds[name] = serving_world(name)
    await rollouts.roll_out(name, make_desired(2, spec=NEXT_MODEL))


async def play_rolled_back(rollouts: Rollouts, name: str) -> None:
    """A second generation whose canary fails its bake."""
    world = rollouts.fakes.worlds[name] = serving_world(name)
    world.faults["watch-canary"] = Fault(error=SmokeTestFailed("the canary restarted"))
    await rollouts.roll_out(name, make_desired(2, spec=NEXT_MODEL))


async def play_in_place(rollouts: Rollouts, name: str) -> None:
    """A change that needs no new pods."""
    rollouts.fakes.worlds[name] = serving_world(name)
    await rollouts.roll_out(name, make_desired(2, spec=make_spec(replicas__min=3)))


async def play_cancelled(rollouts: Rollouts, name: str) -> None:
    """A person cancels during the pull."""
    rollouts.world(name).faults["pull-weights"] = Fault(hold=True)
    await rollouts.poke(name)
    await rollouts.wait_entered(name, "pull-weights")
    await rollouts.handle(name).cancel()
    await rollouts.wait(name)


async def play_superseded(rollouts: Rollouts, name: str) -> None:
    """The run that a newer generation ends; the history is the first run's."""
    fault = rollouts.world(name).faults["run-smoke-test"] = Fault(hold=True)
    await rollouts.poke(name)
    await rollouts.wait_entered(name, "run-smoke-test")
    fault.hold = False
    await rollouts.poke(name, make_desired(2, spec=NEXT_MODEL))
    await rollouts.wait(name)


async def play_deleted(rollouts: Rollouts, name: str) -> None:
    """A teardown."""
    rollouts.fakes.worlds[name] = serving_world(name)
    await rollouts.poke(name, make_desired(1, deleting=True))
    await rollouts.handle(name).result()


async def play_late(rollouts: Rollouts, name: str) -> None:
    """The queue deadline passes in the line."""
    rollouts.world(name).grants = False
    policy = Policy(queue_deadline_seconds=1, gpu_poll_seconds=0.2)
    spec = make_spec(resources__gpuClass="plnt.test/late")
    await rollouts.roll_out(name, make_desired(spec=spec, policy=policy))


async def play_held(rollouts: Rollouts, name: str) -> None:
    """A second generation that is paused before its pull and approved after its bake."""
    world = rollouts.fakes.worlds[name] = serving_world(name)
    world.faults["watch-canary"] = Fault(hold=True, only=lambda arg: arg.seconds > 0)

    def options(**changes: object) -> Desired:
        return make_desired(2, spec=NEXT_MODEL, options=Options.model_validate({"approve": "", **changes}))

    await rollouts.poke(name, options(pause=True))
    await rollouts.wait_report(name, lambda one: any(c.reason == "Paused" for c in one.conditions))
    await rollouts.poke(name, options())
    await rollouts.wait_report(name, lambda one: any(c.reason == "AwaitingApproval" for c in one.conditions))
    await rollouts.poke(name, options(approve="2"))
    await rollouts.wait(name)


async def play_gone(rollouts: Rollouts, name: str) -> None:
    """A WorkflowRun that went without a teardown."""
    rollouts.fakes.worlds[name] = serving_world(name)
    rollouts.world(name).desired = None
    await rollouts.poke(name)
    await rollouts.handle(name).result()


async def play_reset(rollouts: Rollouts, name: str) -> None:
    """A person retries a run that was rolled back; the history is the second run's."""
    world = rollouts.world(name)
    world.faults["run-smoke-test"] = Fault(error=SmokeTestFailed("over budget"))
    await rollouts.roll_out(name)
    world.faults.clear()
    await rollouts.reset(name)
    await rollouts.wait(name)


SCENES = (
    play_first,
    play_promoted,
    play_rolled_back,
    play_in_place,
    play_cancelled,
    play_superseded,
    play_deleted,
    play_late,
    play_held,
    play_gone,
    play_reset,
)


async def record() -> None:
    """Play every scene and write what the server kept."""
    FOLDER.mkdir(exist_ok=True)
    BASELINE.write_text(json.dumps(read_commands(), indent=1) + "\n")
    async with running_rollouts() as rollouts:
        for play in SCENES:
            scene = play.__name__.removeprefix("play_").replace("_", "-")
            await play(rollouts, scene)
            # A superseded run is the first of its chain, a reset one the last.
            reports = [one for one in await rollouts.reports(scene) if one.run_id]
            run = None if play in (play_reset, play_gone) else reports[0].run_id
            await write_history(rollouts, f"rollout.default.{scene}", run, f"rollout-{scene}")
        await write_history(rollouts, "gpu-pool.plnt.test.late", None, "gpu-pool")


async def write_history(rollouts: Rollouts, workflow_id: str, run_id: str | None, file: str) -> None:
    """Write one history without the names of the machine that recorded it."""
    handle = rollouts.client.get_workflow_handle(workflow_id, run_id=run_id)
    text = (await handle.fetch_history()).to_json().replace(socket.gethostname(), "worker")
    history = json.loads(text, object_hook=_drop_identity)
    (FOLDER / f"{file}.json").write_text(
        json.dumps({"workflowId": workflow_id, **history}, separators=(",", ":")) + "\n"
    )


def _drop_identity(part: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in part.items() if key not in {"identity", "stackTrace"}}


if __name__ == "__main__":
    asyncio.run(record())
    gc.collect()
