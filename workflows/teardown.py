"""Deletion: everything of the WorkflowRun goes, the finalizer last."""

from datetime import timedelta

from plnt.model import messages as m
from plnt.model.status import Phase
from plnt.steps import DROP_FINALIZER, RELEASE_NAME, SURVEY, UNINSTALL_RELEASE, WITHDRAW_CANARY
from workflows.attempt import Attempt


async def tear_down(attempt: Attempt) -> None:
    """Take everything down and let the object go; ``skip-teardown`` lets it go at once.

    Raises:
        ActivityError: a step failed for good or passed the undo deadline; the finalizer stays.
    """
    if not attempt.desired.options.skip_teardown:
        attempt.enter(Phase.VALIDATING)
        await remove_everything(attempt)
    arg = m.DropFinalizer(ref=attempt.ref, uid=attempt.desired.uid)
    await attempt.take(DROP_FINALIZER, arg, summary="drop the finalizer")
    attempt.outbox.post("gone", attempt.desired.uid)


async def remove_everything(attempt: Attempt) -> None:
    """Remove route and selector, then the releases, then the claim on the base name."""
    ref, base, policy = attempt.ref, attempt.base, attempt.desired.policy
    limit = timedelta(seconds=policy.undo_deadline_seconds)
    world = await attempt.take(
        SURVEY,
        m.SurveyRequest(ref=ref, base=base, policy=policy, claim=False),
        summary="look at what is to be taken down",
        schedule_to_close=limit,
    )
    carried = bool(world.weights) or world.selector_revision is not None
    await attempt.take(
        WITHDRAW_CANARY,
        m.WithdrawCanary(ref=ref, base=base, policy=policy, stable=None, drain=carried),
        summary="take all traffic away",
        schedule_to_close=limit,
    )
    for release in world.releases:
        await attempt.take(
            UNINSTALL_RELEASE,
            m.ReleaseRequest(ref=ref, base=base, release=release.name),
            summary=f"uninstall {release.name}",
            schedule_to_close=limit,
        )
    await attempt.take(
        RELEASE_NAME,
        m.ReleaseName(ref=ref, base=base),
        summary="give the base name back",
        schedule_to_close=limit,
    )
