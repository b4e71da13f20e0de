"""Volumes that fill up, and pulls side by side."""

import asyncio
import errno
import os
import random
import threading

import pytest
from aiohttp import web

from plnt.clients.weights import partial as partial_module
from plnt.clients.weights.budget import Budget
from plnt.clients.weights.cache import Cache
from plnt.clients.weights.pull import Pull, PullSettings
from plnt.clients.weights.throttle import Throttle
from plnt.errors import InsufficientDisk
from plnt.model.pull_plan import PullPlan
from tests.fakes.file_server import FileServer

MIB = 1 << 20
DATA = random.Random(7).randbytes(24 * MIB)


class FullVolume:
    """Stands for ``os`` on a volume that takes ``room`` bytes more, then ENOSPC; real in everything else."""

    def __init__(self, room: int) -> None:
        self.room = room
        self._lock = threading.Lock()

    def pwrite(self, fd: int, data: memoryview, offset: int) -> int:
        with self._lock:
            count = min(self.room, len(data))
            self.room -= count
        if not count:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return os.pwrite(fd, data[:count], offset)

    def __getattr__(self, name: str) -> object:
        return getattr(os, name)


async def make_plan(server: FileServer, cache: Cache) -> str:
    plan = PullPlan(source=server.where, files=[await server.pin_file(path) for path in server.files])
    return cache.write_plan(plan)


def make_pull(server: FileServer, cache: Cache, rate: int | None = None, budget: Budget | None = None) -> Pull:
    settings = PullSettings(
        cache, server.open, Throttle(rate), 4, stall_seconds=5, pause_seconds=0.02, room_seconds=0.1, budget=budget
    )
    return Pull(settings)


async def test_volume_that_is_full_is_named_with_its_numbers_and_the_bytes_are_kept(
    server: FileServer, cache: Cache, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.files = {"data.bin": DATA}
    plan = await make_plan(server, cache)
    with monkeypatch.context() as patch:
        patch.setattr(partial_module, "os", FullVolume(10 * MIB))
        with pytest.raises(
            InsufficientDisk, match=rf"bytes are free and \d+ more are needed for weights of {len(DATA)}"
        ):
            await make_pull(server, cache).run(plan)
    again = make_pull(server, cache)
    tree = await again.run(plan)
    assert again.read_progress().bytes_reused >= 9 * MIB, "more than one buffer was lost"
    assert (cache.root / "trees" / tree.digest / "data.bin").read_bytes() == DATA


async def test_room_that_another_takes_during_the_pull_ends_it_early(server: FileServer, cache: Cache) -> None:
    server.files = {"data.bin": DATA}
    plan = await make_plan(server, cache)
    bounded = Cache(cache.root, max_bytes=26 * MIB)
    pull = make_pull(server, bounded, rate=8 * MIB)
    running = asyncio.create_task(pull.run(plan))
    async with asyncio.timeout(60):
        while pull.read_progress().bytes_done < 4 * MIB:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    other = cache.root / "blobs" / "sha256" / "other"
    other.write_bytes(bytes(12 * MIB))
    with pytest.raises(InsufficientDisk, match="filled up during the pull"):
        await running
    done = pull.read_progress().bytes_done
    assert done < 20 * MIB
    other.unlink()
    again = make_pull(server, bounded)
    await again.run(plan)
    assert again.read_progress().bytes_reused >= done - MIB


async def test_pulls_side_by_side_keep_within_one_budget_of_connections(server: FileServer, cache: Cache) -> None:
    server.files = {f"{n}.bin": DATA[: 9 * MIB + n] for n in range(3)}
    plans = []
    for path in server.files:
        plan = PullPlan(source=f"{server.where}/{path}", files=[await server.pin_file(path)])
        plans.append(cache.write_plan(plan))
    now = most = 0

    async def count(request: web.Request, data: bytes) -> web.StreamResponse:
        nonlocal now, most
        now += 1
        most = max(most, now)
        await asyncio.sleep(0.05)
        now -= 1
        return server.serve(request, data)

    server.always = count
    budget = Budget(2)
    await asyncio.gather(*(make_pull(server, cache, budget=budget).run(plan) for plan in plans))
    assert most == 2
