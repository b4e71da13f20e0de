"""Kills pulls at random moments: ``python -m tests.fakes.pull_soak CACHE PLAN KILLS SEED EXPECTED``.

Forked from one process, so that a life costs no imports. Ends with an error when a tree is not as expected; prints
how many pulls were killed and how many came to their end.
"""

import asyncio
import hashlib
import json
import os
import random
import shutil
import signal
import sys
import time
from pathlib import Path

from plnt.clients.weights.cache import MANIFEST, Cache
from plnt.clients.weights.pull import Pull, PullSettings
from plnt.clients.weights.s3 import S3Sources
from plnt.clients.weights.throttle import Throttle
from plnt.errors import SourceUnavailable
from plnt.model.pull_plan import PullPlan
from tests.fakes.object_store import ObjectStore

RATE = 40 << 20
MAX_LIFE_SECONDS = 1.2
TRY_AGAIN = 75
"""Exit status of a pull whose source spoiled too many answers in a row; its step would be retried."""


def hash_folder(folder: Path) -> str:
    """Give one digest over names and contents."""
    total = hashlib.sha256()
    for path in sorted(folder.iterdir()):
        if path.name != MANIFEST:
            total.update(path.name.encode() + hashlib.sha256(path.read_bytes()).digest())
    return total.hexdigest()


def start_pull(cache: Path, plan: str) -> int:
    """Start a pull in a process of its own."""
    child = os.fork()
    if child:
        return child
    try:
        settings = PullSettings(
            Cache(cache), S3Sources().open, Throttle(RATE), 8, stall_seconds=1.0, pause_seconds=0.02
        )
        asyncio.run(Pull(settings).run(plan))
    except SourceUnavailable:
        os._exit(TRY_AGAIN)
    except BaseException as error:  # noqa: BLE001 - a forked child must not return
        print(type(error).__name__, error, file=sys.stderr)
        os._exit(1)
    os._exit(0)


def outlive(child: int, seconds: float) -> int | None:
    """Wait for the child; none when it was killed at its time."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        found, status = os.waitpid(child, os.WNOHANG)
        if found:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.002)
    os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    return None if os.waitstatus_to_exitcode(status) == -signal.SIGKILL else os.waitstatus_to_exitcode(status)


async def soak(
    store: ObjectStore, endpoint: str, cache: Cache, plan: PullPlan, model: Path, *, kills: int, seed: int
) -> dict[str, int]:
    """Kill `kills` pulls at random moments; gives how many were killed and how many ended well."""
    words = [str(cache.root), cache.write_plan(plan), str(kills), str(seed), hash_folder(model)]
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "tests.fakes.pull_soak",
        *words,
        env={**os.environ, **store.environ(endpoint), "PYTHONPATH": "."},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    said, complaints = await process.communicate()
    assert process.returncode == 0, complaints.decode()[-2000:]
    counts: dict[str, int] = json.loads(said)
    return counts


def main() -> None:
    """Run the soak."""
    cache, plan, kills, seed, expected = sys.argv[1:]
    root, chance = Path(cache), random.Random(int(seed))
    killed = ended = 0
    while killed < int(kills) or not ended:
        last = killed >= int(kills)
        status = outlive(start_pull(root, plan), 60.0 if last else chance.uniform(0, MAX_LIFE_SECONDS))
        if status is None:
            killed += 1
            continue
        if status == TRY_AGAIN:
            continue
        if status:
            sys.exit(f"a pull ended with {status} after {killed} kills")
        (tree,) = (root / "trees").iterdir()
        if hash_folder(tree) != expected:
            sys.exit(f"after {killed} kills the tree is not what the source has")
        ended += 1
        for name in ("trees", "blobs/sha256", "pins", "partials"):
            shutil.rmtree(root / name)
            (root / name).mkdir()
        (root / "plans" / f"{plan}.tree").unlink()
    print(json.dumps({"killed": killed, "ended": ended}))


if __name__ == "__main__":
    main()
