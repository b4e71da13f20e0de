"""Deploying: a lease of GPUs, then a release of its own without traffic."""

from datetime import timedelta

from temporalio import workflow

from plnt.errors import GpuQueueTimeout
from plnt.model import messages as m
from plnt.model import sizes
from plnt.model.status import Phase
from plnt.steps import (
    AWAIT_RELEASE,
    INSTALL_RELEASE,
    JOIN_LINE,
    LEAVE_LINE,
    SIZE_RELEASE,
    SURVEY,
    UNINSTALL_RELEASE,
    WITHDRAW_CANARY,
)
from workflows.attempt import Attempt
from workflows.undo import Undo


async def deploy(attempt: Attempt, gpu_class: m.GpuClass, tree: m.Tree) -> None:
    """Wait for the GPUs, install the revision and wait for its pods."""
    spec = attempt.desired.spec
    pods = sizes.full_size(spec, attempt.stable_pods)
    attempt.note(gpus=pods * spec.resources.gpu)
    attempt.enter(Phase.DEPLOYING)
    # The line's word about the place is dropped by a reporter that has not heard of the phase yet.
    await attempt.outbox.drain()
    await join_line(attempt, gpu_class, pods)
    await await_grant(attempt)
    attempt.report(reserved=True)
    await install(attempt, gpu_class, tree)
    await await_pods(attempt)


async def join_line(attempt: Attempt, gpu_class: m.GpuClass, pods: int) -> None:
    """Ask for a lease once, for the size at weight 100."""
    resources, info = attempt.desired.spec.resources, workflow.info()
    leave = m.Leave(workflow_id=info.workflow_id, run_id=info.run_id, gpu_class=resources.gpu_class)
    attempt.undos.put_down(Undo(LEAVE_LINE, leave, f"give up the place in the line for {resources.gpu_class}"))
    join = m.Join(
        ref=attempt.ref,
        workflow_id=info.workflow_id,
        run_id=info.run_id,
        uid=attempt.desired.uid,
        release=attempt.facts.release,
        gpu_class=resources.gpu_class,
        resource_name=gpu_class.resource_name,
        node_selector=gpu_class.node_selector,
        tolerations=gpu_class.tolerations,
        pods=pods,
        gpus_per_pod=resources.gpu,
        poll_seconds=attempt.desired.policy.gpu_poll_seconds,
    )
    await attempt.take(JOIN_LINE, join, summary=f"ask for {pods} x {resources.gpu} GPUs of {resources.gpu_class}")


async def await_grant(attempt: Attempt) -> None:
    """Wait for the lease; a changed deadline counts from the same start.

    Raises:
        GpuQueueTimeout: the deadline passed first.
    """
    since = workflow.now()
    while not attempt.is_granted():
        limit = _queue_deadline(attempt)
        left = (since + timedelta(seconds=limit) - workflow.now()).total_seconds()
        if left <= 0:
            resources = attempt.desired.spec.resources
            raise GpuQueueTimeout(
                f"{attempt.facts.gpus} GPUs of {resources.gpu_class} were not free within {limit} s: free some, or"
                " set annotation plnt.work/queue-deadline to a longer time"
            )
        try:
            await workflow.wait_condition(
                lambda limit=limit: attempt.is_granted() or _queue_deadline(attempt) != limit,  # type: ignore[misc]
                timeout=left,
                timeout_summary="longest wait in the line for GPUs",
            )
        except TimeoutError:
            continue


def _queue_deadline(attempt: Attempt) -> int:
    own = attempt.desired.options.queue_deadline_seconds
    return attempt.desired.policy.queue_deadline_seconds if own is None else own


async def install(attempt: Attempt, gpu_class: m.GpuClass, tree: m.Tree) -> None:
    """Install the release, sized for its first task."""
    desired, facts = attempt.desired, attempt.facts
    undo = m.ReleaseRequest(ref=attempt.ref, base=attempt.base, release=facts.release)
    attempt.undos.put_down(Undo(UNINSTALL_RELEASE, undo, f"uninstall {facts.release}", deployed=True))
    attempt.size = _first_size(attempt)
    arg = m.InstallRelease(
        ref=attempt.ref,
        base=attempt.base,
        release=facts.release,
        revision=facts.revision,
        spec=desired.spec,
        options=desired.options,
        policy=desired.policy,
        gpu_class=gpu_class,
        tree=tree,
        replicas=attempt.size,
        values_digest=attempt.world.values.digest if attempt.world.values else "",
    )
    await attempt.take(INSTALL_RELEASE, arg, summary=f"install {facts.release} with {attempt.size} pods, no traffic")


def _first_size(attempt: Attempt) -> int:
    spec = attempt.desired.spec
    return sizes.canary_size(spec, attempt.stable_pods) if attempt.stable else sizes.fixed_size(spec)


async def await_pods(attempt: Attempt) -> None:
    """Wait until every pod of the release under test is ready."""
    arg = m.AwaitRelease(
        ref=attempt.ref,
        base=attempt.base,
        release=attempt.facts.release,
        replicas=attempt.size,
        policy=attempt.desired.policy,
    )
    ready = await attempt.take(AWAIT_RELEASE, arg, summary=f"wait for {attempt.size} ready pods")
    attempt.note(pods=ready.pods)


async def resize(attempt: Attempt, replicas: int) -> None:
    """Size the release under test and wait for its pods; nothing happens when it has that size."""
    if replicas == attempt.size:
        return
    attempt.size = replicas
    arg = m.SizeRelease(ref=attempt.ref, base=attempt.base, release=attempt.facts.release, replicas=replicas)
    await attempt.take(SIZE_RELEASE, arg, summary=f"size {attempt.facts.release} to {replicas} pods")
    await await_pods(attempt)


async def look_at_stable(attempt: Attempt) -> None:
    """Note the present size of what serves: an autoscaler may have changed it since the last look."""
    if attempt.stable is None:
        return
    name = attempt.stable.name
    arg = m.SurveyRequest(ref=attempt.ref, base=attempt.base, policy=attempt.desired.policy, claim=False)
    world = await attempt.take(SURVEY, arg, summary=f"read the present size of {name}")
    attempt.stable = next((release for release in world.releases if release.name == name), attempt.stable)


def put_down_withdrawal(attempt: Attempt) -> None:
    """Register the undo of a route that the next step gives to the canary."""
    withdraw = m.WithdrawCanary(
        ref=attempt.ref, base=attempt.base, policy=attempt.desired.policy, stable=attempt.stable_revision
    )
    attempt.undos.put_down(Undo(WITHDRAW_CANARY, withdraw, "take all traffic off the canary", deployed=True))
