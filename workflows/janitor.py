"""The janitor: once per schedule it removes what no WorkflowRun needs any more."""

from temporalio import workflow
from temporalio.common import VersioningBehavior
from temporalio.exceptions import ActivityError, ApplicationError

from plnt.model.housekeeping import CollectCache, Collected, Housekeeping
from plnt.steps import COLLECT_CACHE, LIST_LIVE_TREES, SWEEP_RELEASES
from workflows.run_step import explain, run_step


@workflow.defn(name="Janitor")
class Janitor:
    """One round; the schedule ``plnt-janitor`` starts it and skips a round while another runs."""

    @workflow.run
    async def run(self, where: Housekeeping | None = None) -> Collected:
        """Uninstall orphaned releases, then collect the cache; one that fails does not keep the other from its work.

        Raises:
            ApplicationError: a step failed; the message says why.
        """
        where = where or Housekeeping()
        faults: list[str] = []
        done = Collected()
        try:
            swept = await run_step(SWEEP_RELEASES, where, summary="uninstall releases without a WorkflowRun")
            workflow.set_current_details(f"uninstalled: {', '.join(swept.releases) or 'nothing'}")
        except ActivityError as error:
            faults.append(_describe(error))
        try:
            done = await self._collect(where)
        except ActivityError as error:
            faults.append(_describe(error))
        if faults:
            raise ApplicationError("; ".join(faults), type="JanitorFailed", non_retryable=True)
        return done

    async def _collect(self, where: Housekeeping) -> Collected:
        """Collect the cache; without the list of trees in use nothing is touched."""
        live = await run_step(LIST_LIVE_TREES, where, summary="list the weights trees in use")
        return await run_step(COLLECT_CACHE, CollectCache(live=live.trees), summary="collect the weights cache")


def _describe(error: ActivityError) -> str:
    failure = explain(error)
    return f"{error.activity_type}: {failure.reason}: {failure.message}"


@workflow.defn(name="Janitor", versioning_behavior=VersioningBehavior.PINNED)
class PinnedJanitor(Janitor):
    """The janitor of a versioned worker."""

    @workflow.run
    async def run(self, where: Housekeeping | None = None) -> Collected:
        """Run one round."""
        return await super().run(where)
