"""Holds between phases: a person paused the rollout, or has not approved the promotion yet."""

import asyncio
from datetime import datetime, timedelta

from temporalio import workflow

from plnt.errors import ApprovalTimeout
from plnt.model import messages as m
from plnt.model.options import MAX_SECONDS
from plnt.steps import WATCH_CANARY
from workflows.attempt import Attempt


async def hold(attempt: Attempt) -> None:
    """Wait before the next phase while the WorkflowRun is paused."""
    if not attempt.desired.options.pause:
        return
    attempt.report(paused=True)
    await workflow.wait_condition(lambda: not attempt.desired.options.pause)
    attempt.note(paused=False)


async def hold_promotion(attempt: Attempt) -> None:
    """Wait before Promoting while paused or not approved; a canary that carries traffic is watched meanwhile.

    Raises:
        ApprovalTimeout: nobody approved within the deadline.
        ActivityError: the canary was unhealthy.
    """
    if not (attempt.desired.options.pause or attempt.desired.needs_approval):
        return
    people = asyncio.create_task(_await_people(attempt))
    tasks = [people]
    if attempt.facts.weights:
        tasks.append(asyncio.create_task(_watch_on(attempt, people)))
    try:
        await workflow.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    if attempt.is_stopped():
        raise asyncio.CancelledError
    for task in tasks:
        if not task.cancelled():
            task.result()
    if people.cancelled():
        # The watch ended by itself without a verdict: nobody approved.
        raise asyncio.CancelledError


async def _watch_on(attempt: Attempt, people: asyncio.Task[None]) -> None:
    """Watch until the people are done; a watch that ends well at the very moment of its cancel swallows that."""
    release = attempt.facts.release
    watch = m.WatchCanary(ref=attempt.ref, base=attempt.base, release=release, seconds=MAX_SECONDS)
    while not people.done():
        await attempt.take(WATCH_CANARY, watch, summary=f"watch {release} until the promotion may begin")


async def _await_people(attempt: Attempt) -> None:
    since = workflow.now()
    while True:
        await hold(attempt)
        if not attempt.desired.needs_approval:
            attempt.note(approval="")
            return
        await _await_approval(attempt, since)


async def _await_approval(attempt: Attempt, since: datetime) -> None:
    """Say what to type and wait for it; also returns when the run was paused or its generation changed."""
    generation = attempt.desired.generation
    until = since + timedelta(seconds=attempt.desired.policy.approve_deadline_seconds)
    left = (until - workflow.now()).total_seconds()
    if left <= 0:
        raise ApprovalTimeout(
            f"generation {generation} was not approved by {until:%Y-%m-%d %H:%M:%S} UTC, as annotation"
            " plnt.work/approve asks for: retry the run, and approve in time"
        )
    attempt.report(
        approval=f"until {until:%Y-%m-%d %H:%M:%S} UTC; to promote: kubectl -n {attempt.ref.namespace} annotate"
        f" --overwrite workflowrun {attempt.ref.name} plnt.work/approve={generation}"
    )
    try:
        await workflow.wait_condition(
            lambda: (
                not attempt.desired.needs_approval
                or attempt.desired.options.pause
                or attempt.desired.generation != generation
            ),
            timeout=left,
            timeout_summary="longest wait for an approval",
        )
    except TimeoutError:
        return
