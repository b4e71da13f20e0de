"""The deploy pool: the claim on a name, Helm releases and their pods. Traffic is the promote pool's."""

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

from activities import housekeeping, release_pods, survey
from activities.progress import heartbeat
from activities.releases import Releases
from plnt import steps
from plnt.clients import kube
from plnt.clients.helm import open_helm, read_chart_versions
from plnt.model import messages as m
from plnt.model.housekeeping import Housekeeping, LiveTrees, Swept
from plnt.model.workflow_run import Runtime
from plnt.resources import chart_dir
from plnt.settings import PoolSettings


class Deploy:
    """The activities of the deploy pool; each may run twice or be killed anywhere."""

    def __init__(self, cluster: kube.Kube, releases: Releases, chart_versions: Mapping[str, str]) -> None:
        """Work on ``cluster``; ``chart_versions`` is runtime -> version of the charts that are installed."""
        self._kube = cluster
        self._releases = releases
        self._chart_versions = dict(chart_versions)

    @steps.implements(steps.SURVEY)
    async def survey(self, request: m.SurveyRequest) -> m.World:
        """Claim the base name if asked to, and look at what exists."""
        if request.claim:
            await survey.check_cache_claim(self._kube, request.ref.namespace, self._releases.cache_volume)
            await survey.claim_name(self._kube, request)
        world = await survey.look_at_world(self._kube, request)
        values = await self._releases.check_values(request)
        return world.model_copy(update={"chart_versions": self._chart_versions, "values": values})

    @steps.implements(steps.RELEASE_NAME)
    async def release_name(self, request: m.ReleaseName) -> m.Done:
        """Give the base name back if nothing serves."""
        await survey.give_name_back(self._kube, request)
        return m.Done()

    @steps.implements(steps.INSTALL_RELEASE)
    async def install_release(self, request: m.InstallRelease) -> m.Done:
        """Install the release without traffic, at its size."""
        async with heartbeat():
            await self._releases.install(request)
        return m.Done()

    @steps.implements(steps.AWAIT_RELEASE)
    async def await_release(self, request: m.AwaitRelease) -> m.ReadyPods:
        """Wait for ready pods, or fail with the real reason."""
        async with heartbeat():
            return m.ReadyPods(pods=await release_pods.await_ready(self._kube, request))

    @steps.implements(steps.SIZE_RELEASE)
    async def size_release(self, request: m.SizeRelease) -> m.Done:
        """Set the release's size."""
        await self._releases.size(request.ref.namespace, request.release, request.replicas)
        return m.Done()

    @steps.implements(steps.UNINSTALL_RELEASE)
    async def uninstall_release(self, request: m.ReleaseRequest) -> m.Done:
        """Drain and uninstall the release until nothing of it is left."""
        await self._releases.uninstall(request)
        return m.Done()

    @steps.implements(steps.WATCH_CANARY)
    async def watch_canary(self, request: m.WatchCanary) -> m.Done:
        """Watch the canary while it carries traffic."""
        await release_pods.watch_canary(self._kube, request)
        return m.Done()

    @steps.implements(steps.SWEEP_RELEASES)
    async def sweep_releases(self, request: Housekeeping) -> Swept:
        """Uninstall what vanished WorkflowRuns left."""
        return await housekeeping.sweep_releases(self._kube, self._releases, request)

    @steps.implements(steps.LIST_LIVE_TREES)
    async def list_live_trees(self, request: Housekeeping) -> LiveTrees:
        """Say which weights trees are in use."""
        return await housekeeping.list_live_trees(self._kube, request)

    @property
    def activities(self) -> Sequence[Callable[..., Any]]:
        """Every activity, for the worker."""
        return (
            self.survey,
            self.release_name,
            self.install_release,
            self.await_release,
            self.size_release,
            self.uninstall_release,
            self.watch_canary,
            self.sweep_releases,
            self.list_live_trees,
        )


@asynccontextmanager
async def open_pool(settings: PoolSettings) -> AsyncIterator[Sequence[Callable[..., Any]]]:
    """Connect to the cluster and find helm and the charts.

    Raises:
        SettingsInvalid: there is no usable helm on PATH.
        ChartInvalid: a runtime's chart is missing.
    """
    charts = {runtime: chart_dir(runtime, settings.charts_dir) for runtime in Runtime}
    versions = read_chart_versions(charts)
    helm = await open_helm()
    async with kube.connect() as cluster:
        yield Deploy(cluster, Releases(cluster, helm, charts, settings.cache_volume), versions).activities
