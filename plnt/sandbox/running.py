"""A sandbox from nothing to ready, for the command, the demo and the tests alike."""

import asyncio
import os
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from temporalio.client import Client
from temporalio.contrib.pydantic import pydantic_data_converter

from plnt import resources
from plnt.clients.kube import VIRTUAL_SERVICES, WORKFLOW_RUNS, Kube
from plnt.errors import PermanentError
from plnt.sandbox import cluster, polling, record, seed
from plnt.sandbox.backing import s3_identities
from plnt.sandbox.component import Component, Site
from plnt.sandbox.components import WIDE_USERS, list_components
from plnt.sandbox.control_plane import render_audit_policy
from plnt.sandbox.kubeconfig import write_kubeconfig
from plnt.sandbox.mesh import config as mesh
from plnt.sandbox.metrics.prepare import register_metrics, write_metrics_files
from plnt.sandbox.pki import Authority
from plnt.sandbox.ports import claim_block
from plnt.sandbox.product import PRODUCT
from plnt.sandbox.programs import Programs
from plnt.sandbox.sources.components import write_source_files
from plnt.sandbox.sources.examples import seed_sources
from plnt.sandbox.state import State, write_json
from plnt.sandbox.supervisor import Supervisor

SERVER_SECONDS = 60.0
"""Longest wait for a server's first answer."""
POOL_SECONDS = 90.0
"""Longest wait for all workers to poll."""
DOMAIN = "cluster.local"
"""DNS domain of the cluster's Services."""
Say = Callable[[str], None]


class SettingInvalid(PermanentError):
    """A setting for the product's processes cannot be read."""


@dataclass
class Sandbox:
    """A running sandbox."""

    site: Site
    supervisor: Supervisor
    seconds: dict[str, float] = field(default_factory=dict)
    """Time from the start to each milestone, in seconds."""

    @property
    def state(self) -> State:
        """The state folder."""
        return self.site.state

    @property
    def programs(self) -> Programs:
        """The executables."""
        return self.site.programs

    @property
    def kubeconfig(self) -> Path:
        """The administrator's kubeconfig."""
        return self.state.kubeconfig

    @property
    def environment(self) -> dict[str, str]:
        """Variables with which ``kubectl``, ``helm`` and ``temporal`` work on the sandbox."""
        return {
            "KUBECONFIG": str(self.kubeconfig),
            "TEMPORAL_ADDRESS": self.site.temporal,
            "HELM_DRIVER": "configmap",
            "PATH": self.site.path,
        }

    async def kubectl(self, *arguments: str) -> str:
        """Run the real kubectl as administrator and give its output."""
        return await cluster.run_kubectl(self.programs, self.kubeconfig, *arguments)

    async def connect_temporal(self) -> Client:
        """Connect to Temporal as the product does."""
        return await Client.connect(self.site.temporal, data_converter=pydantic_data_converter)

    async def wait_polling(self, names: Sequence[str] = PRODUCT, *, starting: bool = False) -> None:
        """Wait until the present process of each named component polls its task queue.

        Raises:
            ComponentFailed: one does not in time, or keeps ending; ``starting`` counts from the sandbox's start.
        """
        client = await self.connect_temporal()
        await polling.wait_polling(client, self.supervisor, names, POOL_SECONDS, starting=starting)


@asynccontextmanager
async def running_sandbox(
    root: Path,
    programs: Programs,
    *,
    overrides: Mapping[str, str] | None = None,
    base: int | None = None,
    only: Sequence[str] | None = None,
    say: Say = lambda _: None,
) -> AsyncIterator[Sandbox]:
    """Run a sandbox in the state folder ``root`` while the context is open.

    What an earlier launcher left behind in the folder is ended first. ``overrides`` are environment variables of
    the product's processes. ``only`` starts just those components and prepares what they can hold.

    Raises:
        PlntError: it could not be started; ComponentFailed when a component is at fault.
    """
    state = State(Path(os.path.abspath(root)))  # noqa: PTH100, ASYNC240 - asks the file system nothing
    state.read_settings()
    await asyncio.to_thread(record.end_all, state.root, state.processes)
    claim = claim_block(state, base)
    try:
        site = Site(state, claim.block, programs, dict(overrides or {}))
        state.clear()
        await asyncio.to_thread(_write_files, site)
        components = [one for one in list_components(site) if only is None or one.name in only]
        sandbox = Sandbox(site, Supervisor(state, components))
        try:
            sandbox.supervisor.start()
            await _prepare(sandbox, components, say)
            yield sandbox
        finally:
            await sandbox.supervisor.stop_all()
            await asyncio.to_thread(record.end_all, state.root, state.processes)
    finally:
        claim.release()


def _write_files(site: Site) -> None:
    """Write certificates, kubeconfigs and the servers' configuration files."""
    state = site.state
    authority = Authority(state.pki)
    authority.issue("apiserver", "kube-apiserver")
    authority.issue("kubelet-client", "kube-apiserver-kubelet-client", "system:masters")
    authority.issue("kubelet", "plnt-kubelet-server")
    authority.issue("front-proxy", "front-proxy")
    authority.issue_signing_pair("service-accounts")
    write_kubeconfig(state.kubeconfig, site.api, authority, "plnt-admin", "system:masters")
    for user in (*WIDE_USERS, *map(user_of, PRODUCT)):
        group = "system:masters" if user in WIDE_USERS else None
        write_kubeconfig(state.kubeconfig_of(user.removeprefix("plnt-")), site.api, authority, user, group)
    (state.data / "s3").mkdir()
    write_json(state.data / "s3.json", s3_identities())
    write_json(site.audit_policy, render_audit_policy())
    _write_mesh_files(site)
    if site.programs.metrics is not None:
        write_metrics_files(site)
    if site.programs.sources is not None:
        write_source_files(site)


def _write_mesh_files(site: Site) -> None:
    istiod = site.block["istiod"]
    clusters = mesh.clusters_file(site.state.root)
    write_json(clusters, {"resources": []})
    write_json(site.mesh_config, mesh.render_mesh_config(istiod))
    bootstrap = mesh.render_bootstrap(
        clusters,
        port=site.block["envoy"],
        admin_port=site.block["envoy-admin"],
        istiod_port=istiod,
        domain=DOMAIN,
    )
    write_json(site.envoy_bootstrap, bootstrap)


def user_of(component: str) -> str:
    """Give a component's user name in the cluster."""
    return f"plnt-{component}"


async def _prepare(sandbox: Sandbox, components: Sequence[Component], say: Say) -> None:
    began = time.monotonic()
    names = [component.name for component in components]

    def reach(milestone: str) -> None:
        sandbox.seconds[milestone] = time.monotonic() - began
        say(f"{sandbox.seconds[milestone]:5.1f} s  {milestone}")

    work = asyncio.create_task(_fill(sandbox, names, reach))
    failing = asyncio.create_task(sandbox.supervisor.wait_failed())
    try:
        await asyncio.wait([work, failing], return_when=asyncio.FIRST_COMPLETED)
        sandbox.supervisor.raise_failure()
        await work
    except ExceptionGroup as group:
        raise group.exceptions[0] from None
    finally:
        for task in (work, failing):
            task.cancel()
        await asyncio.gather(work, failing, return_exceptions=True)


async def _fill(sandbox: Sandbox, names: Sequence[str], reach: Say) -> None:
    async with asyncio.TaskGroup() as group:
        if "s3" in names:
            group.create_task(_fill_store(sandbox, reach))
        if "hub" in names:
            group.create_task(seed_sources(sandbox.site, sandbox.supervisor))
        group.create_task(_fill_cluster(sandbox, reach))
    await sandbox.supervisor.wait_ready([name for name in names if name not in PRODUCT], SERVER_SECONDS)
    reach("servers answer")
    product = [name for name in names if name in PRODUCT]
    if product:
        await sandbox.wait_polling(product, starting=True)
        reach("workers poll")


async def _fill_store(sandbox: Sandbox, reach: Say) -> None:
    """Put the example's model into the S3 server.

    Raises:
        ComponentFailed: the server does not take it.
    """
    try:
        await seed.seed_example(sandbox.site.s3)
    except TimeoutError:
        raise sandbox.supervisor.blame("s3", f"takes no files within {seed.START_SECONDS:.0f} s") from None
    reach("the example's model is in S3")


async def _fill_cluster(sandbox: Sandbox, reach: Say) -> None:
    """Apply plnt's kind as a user would, so that applying it again changes nothing, and what the mesh needs."""
    istio = await asyncio.to_thread(cluster.read_manifests, sandbox.programs.istio_crds)
    await sandbox.supervisor.wait_ready(["kube-apiserver"], SERVER_SECONDS)
    reach("Kubernetes answers")
    async with cluster.open_kube(sandbox.kubeconfig) as kube:
        await _prepare_kinds(sandbox, kube, istio)
        reach("WorkflowRun is served")
        for namespace in (mesh.ISTIO_NAMESPACE, "default"):
            await cluster.create_namespace(kube, namespace)
    reach("cluster is prepared")


async def _prepare_kinds(sandbox: Sandbox, kube: Kube, istio: list[dict[str, Any]]) -> None:
    await asyncio.gather(
        cluster.grant_roles(kube, sandbox.programs, user_of),
        sandbox.kubectl("apply", "-f", str(resources.crd_path())),
        *(cluster.ensure(kube, cluster.CRDS, body) for body in istio),
    )
    for resource in (WORKFLOW_RUNS, VIRTUAL_SERVICES):
        await cluster.wait_served(kube, resource)
    if sandbox.programs.metrics is not None:
        await register_metrics(sandbox.site, kube)
