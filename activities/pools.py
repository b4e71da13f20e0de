"""The pools: which queue each serves, how many activities at once, how long a stop may take."""

from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from activities import deploy, gpu, promote, smoke, weights
from plnt.settings import PoolSettings
from plnt.steps import Queue

Activities = Sequence[Callable[..., Any]]


@dataclass(frozen=True, slots=True)
class Pool:
    """One pool of activity workers.

    ``grace`` is longer than the step that it guards needs to stop: a helm command ends, a pull flushes.
    """

    queue: Queue
    slots: int
    grace: timedelta
    open: Callable[[PoolSettings], AbstractAsyncContextManager[Activities]]


POOLS = {
    "gpu": Pool(Queue.GPU, 8, timedelta(seconds=10), gpu.open_pool),
    "weights": Pool(Queue.WEIGHTS, 4, timedelta(seconds=5), weights.open_pool),
    "deploy": Pool(Queue.DEPLOY, 16, timedelta(seconds=60), deploy.open_pool),
    "smoke": Pool(Queue.SMOKE, 4, timedelta(seconds=5), smoke.open_pool),
    "promote": Pool(Queue.PROMOTE, 8, timedelta(seconds=30), promote.open_pool),
}
