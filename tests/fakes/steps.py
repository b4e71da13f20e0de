"""Every step of the step table over a small world in memory, with faults that a test sets by step."""

import asyncio
import hashlib
from collections import defaultdict
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from temporalio import activity
from temporalio.worker import ActivityInboundInterceptor, ExecuteActivityInput, Interceptor

from plnt import steps
from plnt.errors import DeployFailed, PlntError, SourceUnavailable
from plnt.model import autoscaler, names
from plnt.model import housekeeping as h
from plnt.model import messages as m
from plnt.model.desired import Desired, Loaded, Policy, identity_of
from plnt.model.message import Message
from plnt.model.options import Options
from plnt.model.revision import pods_digest
from plnt.model.status import StatusWrite, StatusWritten
from plnt.model.workflow_run import Spec
from plnt.steps import Queue, Step, implements

NAMESPACE = "default"
JANITOR = "janitor"
"""Name of the world in which the janitor's steps are counted."""


def make_spec(**changes: Any) -> Spec:
    """The spec of a small model; ``changes`` are dotted paths with ``__`` for the dot."""
    plain: dict[str, Any] = {
        "runtime": "vllm",
        "model": {"name": "org/small", "storageUri": "s3://models/small"},
        "resources": {"gpu": 1, "gpuClass": "nvidia.com/h100", "memoryGiB": 8},
        "replicas": {"min": 1, "max": 4},
        "canary": {"trafficPercent": 20, "smokeTest": {"prompts": 3, "ttftBudgetMs": 250}},
    }
    for path, value in changes.items():
        *parents, last = path.split("__")
        place = plain
        for parent in parents:
            place = place.setdefault(parent, {})
        place[last] = value
    return Spec.model_validate(plain)


def make_desired(generation: int = 1, *, spec: Spec | None = None, uid: str = "uid-1", **changes: Any) -> Desired:
    """What ``load-desired`` gives for a WorkflowRun."""
    deleting, options = changes.pop("deleting", False), changes.pop("options", Options())
    digest = hashlib.sha256(options.model_dump_json().encode()).hexdigest()[:12]
    policy = Policy(bake_seconds=0, drain_seconds=0, gpu_poll_seconds=0.2)
    return Desired(
        uid=uid,
        generation=generation,
        identity=identity_of(uid, generation, digest, deleting),
        options_digest=digest,
        deleting=deleting,
        spec=spec or make_spec(),
        options=options,
        policy=changes.pop("policy", policy),
        **changes,
    )


@dataclass
class Fault:
    """What goes wrong in one step: ``error`` is raised ``times`` times; ``hold`` keeps the step until released."""

    error: PlntError | None = None
    times: int = 1_000_000
    hold: bool = False
    done_when_cancelled: bool = False
    """A held step that is cancelled ends well, as one that was done at that very moment."""
    hang: int = 0
    """Attempts that do nothing and never answer, as of a worker that is gone: they end by their time limit."""
    lose: int = 0
    """Attempts that do their work but whose answer is lost, so that the step runs twice."""
    entered: asyncio.Event = field(default_factory=asyncio.Event)
    released: asyncio.Event = field(default_factory=asyncio.Event)
    only: Callable[[Any], bool] = lambda _: True


@dataclass
class Installed:
    """A release of the small world."""

    revision: str
    replicas: int


@dataclass
class SmallWorld:
    """The cluster as one WorkflowRun sees it."""

    desired: Desired | None = field(default_factory=make_desired)
    claimed: bool = False
    selector: str | None = None
    record: m.ServingRecord | None = None
    weights: dict[str, int] = field(default_factory=dict)
    serving: str | None = None
    releases: dict[str, Installed] = field(default_factory=dict)
    calls: list[str] = field(default_factory=list)
    taken: dict[str, list[Any]] = field(default_factory=lambda: defaultdict(list))
    faults: dict[str, Fault] = field(default_factory=dict)
    tree: str = "tree-1"
    plan: m.PlanRef = field(default_factory=lambda: m.PlanRef(digest="plan", files=3, bytes=1_000))
    gpu_memory_mib: int = 0
    """Memory of one GPU; 0 = unknown."""
    values: m.ExtraValues | None = None
    """The extra chart values, if the WorkflowRun names some."""
    grants: bool = True
    """Whether the line grants at once; else it is the real line that decides."""
    ever_weighted: set[str] = field(default_factory=set)
    installed: list[str] = field(default_factory=list)
    leases: set[str] = field(default_factory=set)
    """Runs that joined the line and did not leave it."""

    @property
    def serving_now(self) -> str | None:
        return self.serving or self.selector


def serving_world(name: str, *, revision: str = "0ddba11e", pods: int = 2) -> SmallWorld:
    """A world in which generation 1 serves."""
    release = names.release_name(names.base_name(name), revision)
    old = make_desired()
    record = m.ServingRecord(
        revision=revision,
        release=release,
        generation=1,
        identity=old.identity,
        pods_digest=pods_digest(old.spec, old.options),
        tree="tree-1",
    )
    return SmallWorld(
        claimed=True,
        selector=revision,
        serving=revision,
        record=record,
        weights={revision: 100},
        releases={release: Installed(revision, pods)},
    )


class FakeSteps:
    """Implements every step; one world for each WorkflowRun, told apart by name."""

    def __init__(self) -> None:
        self.worlds: dict[str, SmallWorld] = defaultdict(SmallWorld)
        self.free: dict[str, int] = defaultdict(int)
        """Free GPUs by class, for the real line."""
        self.count_faults: dict[str, Fault] = {}
        """What goes wrong in the counts of a class."""
        self.closed: set[str] = set()
        self.orphans: list[str] = []

    def activities(self, queue: Queue) -> list[Callable[..., Any]]:
        """The activities of one queue."""
        return [getattr(self, step.name.replace("-", "_")) for step in steps.STEPS if step.queue is queue]

    async def _enter(self, step: Step[Any, Any], name: str, arg: Message) -> SmallWorld:
        world = self.worlds[name]
        world.calls.append(step.name)
        world.taken[step.name].append(arg)
        fault = world.faults.get(step.name)
        if fault is not None and fault.only(arg):
            await _meet(fault, heartbeats=step.heartbeat is not None)
        return world

    @implements(steps.LOAD_DESIRED)
    async def load_desired(self, request: m.Target) -> Loaded:
        world = await self._enter(steps.LOAD_DESIRED, request.ref.name, request)
        return Loaded(desired=world.desired)

    @implements(steps.DROP_FINALIZER)
    async def drop_finalizer(self, request: m.DropFinalizer) -> m.Done:
        world = await self._enter(steps.DROP_FINALIZER, request.ref.name, request)
        world.desired = None
        return m.Done()

    @implements(steps.WRITE_STATUS)
    async def write_status(self, request: StatusWrite) -> StatusWritten:
        return StatusWritten(live_uid=request.report.uid if request.report else None)

    @implements(steps.SURVEY)
    async def survey(self, request: m.SurveyRequest) -> m.World:
        world = await self._enter(steps.SURVEY, request.ref.name, request)
        world.claimed |= request.claim
        return m.World(
            serving=world.serving_now,
            record=world.record,
            weights=world.weights,
            releases=[
                m.ReleaseSeen(name=name, revision=one.revision, status="deployed", replicas=one.replicas, ready=1)
                for name, one in world.releases.items()
            ],
            selector_revision=world.selector,
            chart_versions={"vllm": "0.1.0"},
            values=world.values if request.values_from else None,
        )

    @implements(steps.RELEASE_NAME)
    async def release_name(self, request: m.ReleaseName) -> m.Done:
        world = await self._enter(steps.RELEASE_NAME, request.ref.name, request)
        world.claimed = world.claimed and world.selector is not None
        return m.Done()

    @implements(steps.RESOLVE_CLASS)
    async def resolve_class(self, request: m.ResolveClass) -> m.GpuClass:
        world = await self._enter(steps.RESOLVE_CLASS, request.ref.name, request)
        return m.GpuClass(resource_name=request.gpu_class, memory_mib=world.gpu_memory_mib)

    @implements(steps.RESOLVE_SOURCE)
    async def resolve_source(self, request: m.ResolveSource) -> m.PlanRef:
        return (await self._enter(steps.RESOLVE_SOURCE, request.ref.name, request)).plan

    @implements(steps.PULL_WEIGHTS)
    async def pull_weights(self, request: m.PullWeights) -> m.Tree:
        world = await self._enter(steps.PULL_WEIGHTS, request.ref.name, request)
        return m.Tree(digest=world.tree, bytes=1_000, proof="sha256")

    @implements(steps.JOIN_LINE)
    async def join_line(self, request: m.Join) -> m.Done:
        world = await self._enter(steps.JOIN_LINE, request.ref.name, request)
        world.leases.add(request.run_id)
        if world.grants:
            run = activity.client().get_workflow_handle(request.workflow_id, run_id=request.run_id)
            await run.signal("granted", request.run_id)
        else:
            await activity.client().start_workflow(
                "GpuPool",
                id=names.gpu_pool_id(request.gpu_class),
                task_queue=Queue.CONTROL,
                start_signal="join",
                start_signal_args=[request],
            )
        return m.Done()

    @implements(steps.LEAVE_LINE)
    async def leave_line(self, request: m.Leave) -> m.Done:
        _, name = names.parse_workflow_id(request.workflow_id)
        world = await self._enter(steps.LEAVE_LINE, name, request)
        world.leases.discard(request.run_id)
        if not world.grants:
            line = activity.client().get_workflow_handle(names.gpu_pool_id(request.gpu_class))
            await line.signal("leave", request)
        return m.Done()

    @implements(steps.COUNT_FREE)
    async def count_free(self, request: m.CountFree) -> m.Capacity:
        fault = self.count_faults.get(request.gpu_class)
        if fault is not None:
            await _meet(fault, heartbeats=False)
        held = sum(one.pods * one.gpus_per_pod for one in request.leases)
        free = self.free[request.gpu_class] - held
        head = request.head
        asked = [*request.leases, *([head] if head else [])]
        return m.Capacity(
            bound={},
            closed=[one.workflow_id for one in asked if one.workflow_id in self.closed],
            free=free,
            head_fits=head is not None and head.pods * head.gpus_per_pod <= free,
        )

    @implements(steps.INSTALL_RELEASE)
    async def install_release(self, request: m.InstallRelease) -> m.Done:
        world = self.worlds[request.ref.name]
        world.releases[request.release] = Installed(request.revision, request.replicas)
        world.installed.append(request.release)
        await self._enter(steps.INSTALL_RELEASE, request.ref.name, request)
        return m.Done()

    @implements(steps.AWAIT_RELEASE)
    async def await_release(self, request: m.AwaitRelease) -> m.ReadyPods:
        await self._enter(steps.AWAIT_RELEASE, request.ref.name, request)
        return m.ReadyPods(pods=request.replicas)

    @implements(steps.SIZE_RELEASE)
    async def size_release(self, request: m.SizeRelease) -> m.Done:
        world = await self._enter(steps.SIZE_RELEASE, request.ref.name, request)
        world.releases[request.release].replicas = request.replicas
        return m.Done()

    @implements(steps.UNINSTALL_RELEASE)
    async def uninstall_release(self, request: m.ReleaseRequest) -> m.Done:
        world = await self._enter(steps.UNINSTALL_RELEASE, request.ref.name, request)
        gone = world.releases.get(request.release)
        if gone is not None and world.weights.get(gone.revision):
            raise DeployFailed(f"{request.release} still has traffic: {world.weights}")
        world.releases.pop(request.release, None)
        return m.Done()

    @implements(steps.RUN_SMOKE_TEST)
    async def run_smoke_test(self, request: m.RunSmokeTest) -> m.SmokeReport:
        await self._enter(steps.RUN_SMOKE_TEST, request.ref.name, request)
        return m.SmokeReport(prompts=request.prompts, ttft_p50_ms=180.0, ttft_p90_ms=200.0, tpot_p50_ms=22.0)

    @implements(steps.SET_WEIGHTS)
    async def set_weights(self, request: m.SetWeights) -> m.Weights:
        world = await self._enter(steps.SET_WEIGHTS, request.ref.name, request)
        weights = {request.canary: request.canary_percent}
        if request.stable is not None:
            weights[request.stable] = 100 - request.canary_percent
        world.weights = weights
        world.serving = request.serving or world.serving_now
        world.ever_weighted.add(request.canary)
        return m.Weights(weights=weights)

    @implements(steps.WATCH_CANARY)
    async def watch_canary(self, request: m.WatchCanary) -> m.Done:
        await self._enter(steps.WATCH_CANARY, request.ref.name, request)
        return m.Done()

    @implements(steps.WITHDRAW_CANARY)
    async def withdraw_canary(self, request: m.WithdrawCanary) -> m.Done:
        world = await self._enter(steps.WITHDRAW_CANARY, request.ref.name, request)
        world.serving = request.stable
        world.weights = {request.stable: 100} if request.stable else {}
        if request.stable is None:
            world.selector, world.record = None, None
        return m.Done()

    @implements(steps.SETTLE)
    async def settle(self, request: m.Settle) -> m.Settled:
        world = await self._enter(steps.SETTLE, request.ref.name, request)
        world.selector, world.record = request.record.revision, request.record
        plan = autoscaler.plan_autoscaler(request.spec, request.policy, keda=True)
        return m.Settled(
            endpoint=names.endpoint_url(request.base, request.ref.namespace),
            autoscaling=autoscaler.describe_plan(plan, request.spec, request.release_name, served=True),
        )

    @implements(steps.SWEEP_RELEASES)
    async def sweep_releases(self, request: h.Housekeeping) -> h.Swept:
        await self._enter(steps.SWEEP_RELEASES, JANITOR, request)
        return h.Swept(releases=self.orphans)

    @implements(steps.LIST_LIVE_TREES)
    async def list_live_trees(self, request: h.Housekeeping) -> h.LiveTrees:
        await self._enter(steps.LIST_LIVE_TREES, JANITOR, request)
        return h.LiveTrees(trees=["tree-1"])

    @implements(steps.COLLECT_CACHE)
    async def collect_cache(self, request: h.CollectCache) -> h.Collected:
        await self._enter(steps.COLLECT_CACHE, JANITOR, request)
        return h.Collected(trees=["tree-0"])


class LostAnswers(Interceptor):
    """Keeps the answers of faulty steps to itself."""

    def __init__(self, fakes: FakeSteps) -> None:
        self.fakes = fakes

    def intercept_activity(self, next: ActivityInboundInterceptor) -> ActivityInboundInterceptor:  # noqa: A002
        return _Losing(next, self.fakes)


class _Losing(ActivityInboundInterceptor):
    def __init__(self, inner: ActivityInboundInterceptor, fakes: FakeSteps) -> None:
        super().__init__(inner)
        self.fakes = fakes

    async def execute_activity(self, input: ExecuteActivityInput) -> Any:  # noqa: A002
        answer = await super().execute_activity(input)
        info, arg = activity.info(), input.args[0]
        if (info.workflow_id or "").startswith("rollout."):
            _, name = names.parse_workflow_id(info.workflow_id or "")
            fault = self.fakes.worlds[name].faults.get(info.activity_type)
            if fault is not None and fault.lose > 0 and fault.only(arg):
                fault.lose -= 1
                await _stay_silent()
        return answer


SILENCE_SECONDS = 20.0
"""Longer than any time limit of a test that lets attempts fall silent."""


async def _stay_silent() -> None:
    await asyncio.sleep(SILENCE_SECONDS)
    raise DeployFailed("an attempt that was given up came back")


async def _meet(fault: Fault, *, heartbeats: bool) -> None:
    fault.entered.set()
    if fault.hang > 0:
        fault.hang -= 1
        await _stay_silent()
    if fault.hold:
        with suppress(*((asyncio.CancelledError,) if fault.done_when_cancelled else ())):
            await _wait(fault.released, heartbeats=heartbeats)
    if fault.error is not None and fault.times > 0:
        fault.times -= 1
        raise type(fault.error)(str(fault.error))


async def _wait(released: asyncio.Event, *, heartbeats: bool) -> None:
    while not released.is_set():
        if heartbeats:
            activity.heartbeat()
        try:
            await asyncio.wait_for(released.wait(), 0.05)
        except TimeoutError:
            continue


def unavailable() -> PlntError:
    """A failure that passes."""
    return SourceUnavailable("the source does not answer; try again later")


def broken() -> PlntError:
    """A failure that stays."""
    return DeployFailed("the step met what it cannot change; look at the pods")
