"""Deletion: everything of the WorkflowRun goes, the finalizer last."""

from datetime import timedelta
from typing import Protocol

from plnt.model import messages as m
from plnt.model import names
from plnt.model.desired import Policy, Ref
from plnt.model.status import Phase
from plnt.steps import DROP_FINALIZER, RELEASE_NAME, SURVEY, UNINSTALL_RELEASE, WITHDRAW_CANARY, In, Out, Step
from workflows.attempt import Attempt


class Take(Protocol):
    """How a step is run."""

    async def __call__(
        self, step: Step[In, Out], arg: In, *, summary: str, schedule_to_close: timedelta | None = None
    ) -> Out:
        """Run ``step`` and give its result."""


async def tear_down(attempt: Attempt) -> None:
    """Take everything down and let the object go; ``skip-teardown`` lets it go at once.

    Raises:
        ActivityError: a step failed for good or passed the undo deadline; the finalizer stays.
    """
    if not attempt.desired.options.skip_teardown:
        attempt.enter(Phase.VALIDATING)
        await remove_everything(attempt.take, attempt.ref, attempt.desired.policy)
    arg = m.DropFinalizer(ref=attempt.ref, uid=attempt.desired.uid)
    await attempt.take(DROP_FINALIZER, arg, summary="drop the finalizer")
    attempt.outbox.post("gone", attempt.desired.uid)


async def remove_everything(take: Take, ref: Ref, policy: Policy) -> None:
    """Remove route and selector, then the releases, then the claim on the base name.

    Raises:
        ActivityError: a step failed for good or passed the undo deadline.
    """
    base = names.base_name(ref.name)
    limit = timedelta(seconds=policy.undo_deadline_seconds)
    world = await take(
        SURVEY,
        m.SurveyRequest(ref=ref, base=base, policy=policy, claim=False),
        summary="look at what is to be taken down",
        schedule_to_close=limit,
    )
    carried = bool(world.weights) or world.selector_revision is not None
    await take(
        WITHDRAW_CANARY,
        m.WithdrawCanary(ref=ref, base=base, policy=policy, stable=None, drain=carried),
        summary="take all traffic away",
        schedule_to_close=limit,
    )
    for release in world.releases:
        await take(
            UNINSTALL_RELEASE,
            m.ReleaseRequest(ref=ref, base=base, release=release.name),
            summary=f"uninstall {release.name}",
            schedule_to_close=limit,
        )
    await take(
        RELEASE_NAME,
        m.ReleaseName(ref=ref, base=base),
        summary="give the base name back",
        schedule_to_close=limit,
    )
