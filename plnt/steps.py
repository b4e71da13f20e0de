"""The table of steps: the only contract between workflow code and activity pools."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from typing import Generic, TypeVar

from temporalio import activity
from temporalio.common import RetryPolicy

from plnt.model import messages as m
from plnt.model.desired import Loaded
from plnt.model.housekeeping import CollectCache, Collected, Housekeeping, LiveTrees, Swept
from plnt.model.message import Message
from plnt.model.status import Phase, StatusWrite, StatusWritten

In = TypeVar("In", bound=Message)
Out = TypeVar("Out", bound=Message)
Owner = TypeVar("Owner")


class Queue(StrEnum):
    """Task queues, one per worker pool."""

    CONTROL = "plnt-control"
    BRIDGE = "plnt-bridge"
    GPU = "plnt-gpu"
    WEIGHTS = "plnt-weights"
    DEPLOY = "plnt-deploy"
    SMOKE = "plnt-smoke"
    PROMOTE = "plnt-promote"


@dataclass(frozen=True, slots=True)
class Step(Generic[In, Out]):
    """One activity as the workflow sees it.

    ``heartbeat`` none: the activity is short and not told of a cancel. ``wait_cancel``: a cancelled workflow
    waits until the activity has really stopped, so that no undo overlaps it; without a heartbeat that is the
    end of the attempt under way.
    """

    name: str
    takes: type[In]
    gives: type[Out]
    queue: Queue
    start_to_close: timedelta
    schedule_to_close: timedelta | None
    retry: RetryPolicy
    phase: Phase | None = None
    heartbeat: timedelta | None = None
    wait_cancel: bool = False


def implements(
    step: Step[In, Out],
) -> Callable[[Callable[[Owner, In], Awaitable[Out]]], Callable[[Owner, In], Awaitable[Out]]]:
    """Register a method as the activity that carries out ``step``."""
    return activity.defn(name=step.name)


def _retry(first: float, most: float, attempts: int = 0) -> RetryPolicy:
    return RetryPolicy(
        initial_interval=timedelta(seconds=first),
        backoff_coefficient=2.0,
        maximum_interval=timedelta(seconds=most),
        maximum_attempts=attempts,
    )


_SECONDS_10, _SECONDS_20, _SECONDS_30 = (timedelta(seconds=s) for s in (10, 20, 30))
_MINUTE, _MINUTES_15 = (timedelta(minutes=n) for n in (1, 15))
_HOUR, _HOURS_2, _HOURS_6, _HOURS_12 = (timedelta(hours=h) for h in (1, 2, 6, 12))
_PATIENT = _retry(1, 30)
"""Unlimited attempts inside schedule-to-close: an outage of the API server, or of a whole pool, is waited out."""
_FOREVER: timedelta | None = None

LOAD_DESIRED = Step(
    "load-desired",
    m.Target,
    Loaded,
    Queue.BRIDGE,
    _SECONDS_10,
    _FOREVER,
    _PATIENT,
    Phase.VALIDATING,
    wait_cancel=True,
)
DROP_FINALIZER = Step("drop-finalizer", m.DropFinalizer, m.Done, Queue.BRIDGE, _SECONDS_10, _FOREVER, _PATIENT)
WRITE_STATUS = Step("write-status", StatusWrite, StatusWritten, Queue.BRIDGE, _SECONDS_10, _FOREVER, _PATIENT)

SURVEY = Step(
    "survey", m.SurveyRequest, m.World, Queue.DEPLOY, _MINUTE, _HOUR, _PATIENT, Phase.VALIDATING, wait_cancel=True
)
RELEASE_NAME = Step("release-name", m.ReleaseName, m.Done, Queue.DEPLOY, _MINUTE, _HOURS_2, _PATIENT)
RESOLVE_CLASS = Step(
    "resolve-class", m.ResolveClass, m.GpuClass, Queue.GPU, _SECONDS_30, _HOUR, _PATIENT, Phase.VALIDATING
)
RESOLVE_SOURCE = Step(
    "resolve-source", m.ResolveSource, m.PlanRef, Queue.WEIGHTS, _MINUTE, _HOUR, _PATIENT, Phase.VALIDATING
)
PULL_WEIGHTS = Step(
    "pull-weights",
    m.PullWeights,
    m.Tree,
    Queue.WEIGHTS,
    _HOURS_6,
    _HOURS_12,
    _retry(1, 60),
    Phase.PULLING_WEIGHTS,
    heartbeat=_SECONDS_10,
    wait_cancel=True,
)
JOIN_LINE = Step(
    "join-line", m.Join, m.Done, Queue.GPU, _SECONDS_30, _HOUR, _PATIENT, Phase.DEPLOYING, wait_cancel=True
)
LEAVE_LINE = Step("leave-line", m.Leave, m.Done, Queue.GPU, _SECONDS_30, _HOURS_2, _PATIENT)
# Bounded although it is asked for ever: the line takes no join and no leave while a count is under way.
COUNT_FREE = Step("count-free", m.CountFree, m.Capacity, Queue.GPU, _SECONDS_30, _MINUTE, _PATIENT)

INSTALL_RELEASE = Step(
    "install-release",
    m.InstallRelease,
    m.Done,
    Queue.DEPLOY,
    _MINUTES_15,
    _HOUR,
    _retry(2, 60),
    Phase.DEPLOYING,
    heartbeat=_SECONDS_20,
    wait_cancel=True,
)
AWAIT_RELEASE = Step(
    "await-release",
    m.AwaitRelease,
    m.ReadyPods,
    Queue.DEPLOY,
    _HOURS_2,
    _HOURS_2,
    _PATIENT,
    Phase.DEPLOYING,
    heartbeat=_SECONDS_20,
    wait_cancel=True,
)
SIZE_RELEASE = Step(
    "size-release", m.SizeRelease, m.Done, Queue.DEPLOY, _MINUTE, _HOUR, _PATIENT, Phase.PROMOTING, wait_cancel=True
)
UNINSTALL_RELEASE = Step(
    "uninstall-release",
    m.ReleaseRequest,
    m.Done,
    Queue.DEPLOY,
    _MINUTES_15,
    _HOURS_2,
    _PATIENT,
    Phase.PROMOTING,
    heartbeat=_SECONDS_20,
    wait_cancel=True,
)
RUN_SMOKE_TEST = Step(
    "run-smoke-test",
    m.RunSmokeTest,
    m.SmokeReport,
    Queue.SMOKE,
    _MINUTES_15,
    _HOURS_6,
    _retry(2, 30, attempts=3),
    Phase.SMOKE_TESTING,
    heartbeat=_SECONDS_20,
    wait_cancel=True,
)
SET_WEIGHTS = Step(
    "set-weights",
    m.SetWeights,
    m.Weights,
    Queue.PROMOTE,
    _MINUTE,
    _HOUR,
    _PATIENT,
    Phase.SMOKE_TESTING,
    wait_cancel=True,
)
WATCH_CANARY = Step(
    "watch-canary",
    m.WatchCanary,
    m.Done,
    Queue.DEPLOY,
    _HOURS_12 * 60,
    _HOURS_12 * 60,
    _PATIENT,
    Phase.SMOKE_TESTING,
    heartbeat=_SECONDS_20,
    wait_cancel=True,
)
WITHDRAW_CANARY = Step(
    "withdraw-canary", m.WithdrawCanary, m.Done, Queue.PROMOTE, _MINUTES_15, _HOURS_2, _PATIENT, heartbeat=_SECONDS_20
)
SETTLE = Step("settle", m.Settle, m.Settled, Queue.PROMOTE, _MINUTE, _HOUR, _PATIENT, Phase.PROMOTING, wait_cancel=True)
SWEEP_RELEASES = Step(
    "sweep-releases",
    Housekeeping,
    Swept,
    Queue.DEPLOY,
    _MINUTES_15,
    _HOUR,
    _retry(5, 60, attempts=3),
    heartbeat=_SECONDS_20,
)
LIST_LIVE_TREES = Step(
    "list-live-trees", Housekeeping, LiveTrees, Queue.DEPLOY, _MINUTE, _MINUTES_15, _retry(5, 60, attempts=3)
)
COLLECT_CACHE = Step(
    "collect-cache",
    CollectCache,
    Collected,
    Queue.WEIGHTS,
    _MINUTES_15,
    # Half of the grace time for what was used after the live trees were listed.
    2 * _MINUTES_15,
    _retry(5, 60, attempts=3),
    heartbeat=_SECONDS_20,
    wait_cancel=True,
)

STEPS: tuple[Step[Message, Message], ...] = (
    LOAD_DESIRED,
    DROP_FINALIZER,
    WRITE_STATUS,
    SURVEY,
    RELEASE_NAME,
    RESOLVE_CLASS,
    RESOLVE_SOURCE,
    PULL_WEIGHTS,
    JOIN_LINE,
    LEAVE_LINE,
    COUNT_FREE,
    INSTALL_RELEASE,
    AWAIT_RELEASE,
    SIZE_RELEASE,
    UNINSTALL_RELEASE,
    RUN_SMOKE_TEST,
    SET_WEIGHTS,
    WATCH_CANARY,
    WITHDRAW_CANARY,
    SETTLE,
    SWEEP_RELEASES,
    LIST_LIVE_TREES,
    COLLECT_CACHE,
)  # type: ignore[assignment]
"""Every step, for tests and for workers that check that all of a queue's steps are implemented."""


def phase_of(step_name: str) -> Phase | None:
    """Give the phase in which a step runs; none for steps of undo and housekeeping."""
    return next((step.phase for step in STEPS if step.name == step_name), None)
