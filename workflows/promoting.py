"""Promoting: all traffic to the pods that were tested; from weight 100 on there is only forward."""

from plnt.model import autoscaler, sizes
from plnt.model import messages as m
from plnt.model.revision import pods_digest
from plnt.model.status import Phase
from plnt.model.workflow_run import Spec
from plnt.steps import (
    AWAIT_RELEASE,
    LEAVE_LINE,
    RELEASE_NAME,
    SET_WEIGHTS,
    SETTLE,
    SIZE_RELEASE,
    UNINSTALL_RELEASE,
    WITHDRAW_CANARY,
)
from workflows.attempt import Attempt, lacks_endpoints
from workflows.deploying import look_at_stable, put_down_withdrawal, resize


async def promote(attempt: Attempt, tree: m.Tree) -> None:
    """Size the canary as what serves, route everything to it, settle, and retire what served before."""
    attempt.enter(Phase.PROMOTING)
    await look_at_stable(attempt)
    await resize(attempt, sizes.full_size(attempt.desired.spec, attempt.stable_pods))
    await cross_over(attempt)
    await settle(attempt, tree.digest)
    await retire(attempt)
    await end_lease(attempt)
    await settle(attempt, tree.digest)
    attempt.report(phase=Phase.READY)


async def cross_over(attempt: Attempt) -> None:
    """Write weight 100 and the serving revision in one apply; its read-back is the point of no return.

    A cancel waits for the attempt under way, and a value in spite of the cancel means that the point is passed.
    """
    revision = attempt.facts.revision
    put_down_withdrawal(attempt)
    weights = await attempt.commit(
        SET_WEIGHTS,
        m.SetWeights(
            ref=attempt.ref,
            base=attempt.base,
            policy=attempt.desired.policy,
            stable=None,
            canary=revision,
            canary_percent=100,
            serving=revision,
        ),
        summary=f"route 100 % to {revision}",
    )
    for step in (WITHDRAW_CANARY, UNINSTALL_RELEASE, RELEASE_NAME):
        attempt.undos.strike(step)
    attempt.note(weights=weights.weights, promoted=True)


async def settle(attempt: Attempt, tree: str) -> None:
    """Let front Service, record and size follow, again while the WorkflowRun changes in place.

    The autoscaler comes before the size: one that is to go would change the size again. The report comes after: an
    endpoint is reported only with its EndpointSlice seen filled.
    """
    while attempt.applied != attempt.desired.identity:
        desired, release = attempt.desired, attempt.facts.release
        record = m.ServingRecord(
            revision=attempt.facts.revision,
            release=release,
            generation=desired.generation,
            identity=desired.identity,
            pods_digest=pods_digest(desired.spec, desired.options),
            tree=tree,
            gpu_class=desired.spec.resources.gpu_class,
        )
        settled = await attempt.insist(
            SETTLE,
            attempt.ask_to_settle(record),
            summary=f"point the front Service at {release} and write the serving record",
            is_hopeless=lambda failure: attempt.superseded and lacks_endpoints(failure),
        )
        await _follow_size(attempt, desired.spec)
        attempt.applied = desired.identity
        attempt.note(endpoint=settled.endpoint, autoscaling=settled.autoscaling)


async def _follow_size(attempt: Attempt, spec: Spec) -> None:
    """Size what serves, unless an autoscaler does; more pods are waited for, since Ready is said of this generation."""
    release, before, replicas = attempt.facts.release, attempt.size, sizes.least_size(spec)
    scaled = autoscaler.is_wanted(spec)
    if replicas != before and not scaled:
        arg = m.SizeRelease(ref=attempt.ref, base=attempt.base, release=release, replicas=replicas)
        await attempt.insist(SIZE_RELEASE, arg, summary=f"size {release} to {replicas} pods")
    if replicas > before:
        policy = attempt.desired.policy
        wait = m.AwaitRelease(ref=attempt.ref, base=attempt.base, release=release, replicas=replicas, policy=policy)
        await attempt.insist(AWAIT_RELEASE, wait, summary=f"wait for {replicas} ready pods")
    attempt.size = 0 if scaled else replicas


async def retire(attempt: Attempt) -> None:
    """Uninstall what served before, once its streams had time to end."""
    if attempt.stable is None:
        return
    drain = attempt.desired.policy.drain_seconds
    arg = m.ReleaseRequest(ref=attempt.ref, base=attempt.base, release=attempt.stable.name, drain_seconds=drain)
    await attempt.insist(UNINSTALL_RELEASE, arg, summary=f"drain {drain} s, then uninstall {attempt.stable.name}")


async def end_lease(attempt: Attempt) -> None:
    """Give the lease back: from here on the pods themselves hold the GPUs."""
    leave = attempt.undos.find(LEAVE_LINE)
    if leave is not None:
        await attempt.insist(leave.step, leave.arg, summary="end the lease: the pods hold the GPUs")
        attempt.undos.strike(LEAVE_LINE)


async def follow(attempt: Attempt, tree: str) -> None:
    """Apply what needs no other pods to the release that serves."""
    assert attempt.stable is not None
    stable = attempt.stable
    attempt.note(
        accepted=True,
        unchanged=True,
        revision=stable.revision,
        release=stable.name,
        weights=attempt.world.weights or {stable.revision: 100},
    )
    attempt.enter(Phase.PROMOTING)
    least = sizes.least_size(attempt.desired.spec)
    if stable.replicas < least:
        arg = m.SizeRelease(ref=attempt.ref, base=attempt.base, release=stable.name, replicas=least)
        await attempt.take(SIZE_RELEASE, arg, summary=f"size {stable.name} to {least} pods")
    # What was read may change while an autoscaler holds it, so the size counts as unknown until it is settled.
    attempt.size = 0
    await settle(attempt, tree)
    attempt.report(phase=Phase.READY)
