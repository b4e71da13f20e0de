"""The workflows as a versioned worker runs them: the server refuses these behaviours from one that is not."""

from temporalio import workflow
from temporalio.common import VersioningBehavior

from plnt.model.line import Line
from workflows.gpu_pool import GpuPool
from workflows.rollout import Rollout


@workflow.defn(name="Rollout", versioning_behavior=VersioningBehavior.PINNED)
class PinnedRollout(Rollout):
    """Stays with the build that it began on; a run that continues as new takes the current one."""

    @workflow.run
    async def run(self) -> None:
        """Run the rollout."""
        await super().run()


@workflow.defn(name="GpuPool", versioning_behavior=VersioningBehavior.AUTO_UPGRADE)
class UpgradedGpuPool(GpuPool):
    """Lives for ever, so it moves to each current build."""

    @workflow.init
    def __init__(self, line: Line | None = None) -> None:
        super().__init__(line)

    @workflow.run
    async def run(self, line: Line | None = None) -> None:
        """Serve the line."""
        await super().run(line)
