"""Validating and PullingWeights: nothing of this generation stands in the cluster yet."""

import asyncio
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any

from plnt.errors import SpecInvalid
from plnt.model import messages as m
from plnt.model import names
from plnt.model.checks import check_desired
from plnt.model.extra_values import check_values
from plnt.model.fit import judge_fit
from plnt.model.revision import pods_digest
from plnt.model.status import Phase
from plnt.steps import (
    PULL_WEIGHTS,
    RELEASE_NAME,
    RESOLVE_CLASS,
    RESOLVE_SOURCE,
    SETTLE,
    SURVEY,
    UNINSTALL_RELEASE,
    WITHDRAW_CANARY,
)
from workflows.attempt import Attempt, GivenUp, lacks_endpoints
from workflows.undo import Undo


async def validate(attempt: Attempt) -> None:
    """Claim the base name, bring back a clean world, and refuse what cannot be honoured.

    The refusal comes last: what an earlier run left must go for a faulty generation too.

    Raises:
        SpecInvalid: the spec or an annotation asks for what plnt cannot honour.
    """
    attempt.enter(Phase.VALIDATING)
    faults = check_desired(attempt.desired)
    await survey(attempt, claim=not faults)
    await clean_up(attempt)
    if not is_in_place(attempt):
        faults += check_values(attempt.desired.spec, attempt.world.values)
    if faults:
        raise SpecInvalid("; ".join(faults))


async def survey(attempt: Attempt, *, claim: bool) -> None:
    """Look at what exists, and note what serves."""
    if claim:
        arg = m.ReleaseName(ref=attempt.ref, base=attempt.base)
        attempt.undos.put_down(Undo(RELEASE_NAME, arg, "give the base name back"))
    world = await attempt.take(
        SURVEY,
        m.SurveyRequest(
            ref=attempt.ref,
            base=attempt.base,
            policy=attempt.desired.policy,
            claim=claim,
            runtime=attempt.desired.spec.runtime,
            values_from=attempt.desired.options.values_from,
        ),
        summary="claim the base name and look at what exists" if claim else "look at what exists",
    )
    attempt.world = world
    attempt.stable = next((one for one in world.releases if one.revision == world.serving), None)
    attempt.note(endpoint_known=True, endpoint=attempt.endpoint if attempt.stable else None)
    if attempt.stable:
        attempt.undos.strike(RELEASE_NAME)


async def clean_up(attempt: Attempt) -> None:
    """Undo what a terminated or reset run left: traffic to what serves alone, then no other release."""
    world, stable = attempt.world, attempt.stable_revision
    left_canary = bool(world.weights) and set(world.weights) != ({stable} if stable else set())
    if left_canary:
        await attempt.take(
            WITHDRAW_CANARY,
            m.WithdrawCanary(ref=attempt.ref, base=attempt.base, policy=attempt.desired.policy, stable=stable),
            summary="route everything to what serves: an earlier run left a canary",
        )
    if attempt.stable and not _is_settled(attempt):
        await finish_promotion(attempt)
    for release in world.releases:
        if release.revision != stable:
            # One with ready pods beside what serves may have served until a moment ago.
            drains = attempt.stable is not None and release.ready > 0 and not left_canary
            drain = attempt.desired.policy.drain_seconds if drains else 0
            await attempt.take(
                UNINSTALL_RELEASE,
                m.ReleaseRequest(ref=attempt.ref, base=attempt.base, release=release.name, drain_seconds=drain),
                summary=f"uninstall {release.name}: an earlier run left it",
            )


def _is_settled(attempt: Attempt) -> bool:
    world = attempt.world
    return world.record is not None and world.record.revision == world.serving == world.selector_revision


async def finish_promotion(attempt: Attempt) -> None:
    """Let front Service and record follow a revision that an earlier run put at weight 100.

    The record says nothing about its spec, so the next decision about it resolves afresh. The point of no return was
    passed by that run, so this too is retried until it is done, but for pods that it cannot bring back.
    """
    assert attempt.stable is not None
    attempt.past_return = True
    stable = attempt.stable
    record = m.ServingRecord(
        revision=stable.revision, release=stable.name, generation=0, identity="", pods_digest="unknown"
    )
    with suppress(GivenUp):
        await attempt.insist(
            SETTLE,
            attempt.ask_to_settle(record),
            summary="finish the promotion that an earlier run began",
            is_hopeless=lacks_endpoints,
        )
    attempt.past_return = False


def is_in_place(attempt: Attempt) -> bool:
    """Say whether what serves has the pods that the spec asks for.

    The very identity that is recorded resolves afresh: a person ran it again on purpose.
    """
    record, desired = attempt.world.record, attempt.desired
    return (
        attempt.stable is not None
        and record is not None
        and record.revision == attempt.stable.revision
        and record.identity != desired.identity
        and record.pods_digest == pods_digest(desired.spec, desired.options)
    )


async def resolve(attempt: Attempt) -> tuple[m.GpuClass, m.PlanRef]:
    """Resolve GPU class and source at the same time; the first failure ends both.

    Raises:
        SpecInvalid: the model cannot be loaded on that many GPUs of the class.
    """
    spec = attempt.desired.spec
    by_class = m.ResolveClass(
        ref=attempt.ref,
        gpu_class=spec.resources.gpu_class,
        gpu=spec.resources.gpu,
        memory_gib=spec.resources.memory_gib,
    )
    by_source = m.ResolveSource(
        ref=attempt.ref,
        runtime=spec.runtime,
        storage_uri=spec.model.storage_uri,
        quantization=spec.model.quantization,
        credentials=attempt.desired.options.credentials,
        include=attempt.desired.options.include,
        exclude=attempt.desired.options.exclude,
    )
    gpu_class, plan = await _run_both(
        attempt.take(RESOLVE_CLASS, by_class, summary=f"find nodes that offer {spec.resources.gpu_class}"),
        attempt.take(RESOLVE_SOURCE, by_source, summary=f"pin {spec.model.storage_uri} to a plan"),
    )
    fit = judge_fit(spec, plan, gpu_class, attempt.world.values)
    if fit.fault:
        raise SpecInvalid(fit.fault)
    attempt.note(accepted=True, plan=plan, warnings=fit.warnings)
    return gpu_class, plan


async def _run_both(first: Coroutine[Any, Any, Any], second: Coroutine[Any, Any, Any]) -> tuple[Any, Any]:
    tasks = [asyncio.create_task(first), asyncio.create_task(second)]
    try:
        gathered = await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
    return gathered[0], gathered[1]


async def pull_weights(attempt: Attempt, plan: m.PlanRef) -> m.Tree:
    """Pull the plan into the cache; verified parts stay whatever comes later."""
    attempt.enter(Phase.PULLING_WEIGHTS)
    arg = m.PullWeights(
        ref=attempt.ref,
        storage_uri=attempt.desired.spec.model.storage_uri,
        plan=plan,
        credentials=attempt.desired.options.credentials,
    )
    tree = await attempt.take(PULL_WEIGHTS, arg, summary=f"pull {plan.files} files, {plan.bytes} bytes")
    attempt.note(tree=tree)
    return tree


def release_of(attempt: Attempt, revision: str) -> str:
    """Name the release of ``revision``."""
    return names.release_name(attempt.base, revision)
