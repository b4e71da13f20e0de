"""The janitor's steps with the real helm against a real API server, and on a cache with leases."""

import dataclasses
import os
import time
import uuid
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Any, cast

import pytest
from temporalio.client import Client
from temporalio.testing import ActivityEnvironment

from activities import cache_keeping
from activities.deploy import Deploy
from activities.releases import Releases
from plnt.clients.helm import open_helm, read_chart_versions
from plnt.clients.kube import CONFIG_MAPS, DEPLOYMENTS, WORKFLOW_RUNS, Kube
from plnt.clients.weights.cache import Cache
from plnt.clients.weights.collect import Rules
from plnt.clients.weights.leases import Lease, Leases
from plnt.model import housekeeping as model
from plnt.model import messages as m
from plnt.model import names
from plnt.model.desired import Policy, Ref
from plnt.model.options import Options
from plnt.model.workflow_run import Model, Resources, Runtime, Spec
from plnt.resources import chart_dir
from plnt.sandbox.cluster import create_namespace, open_kube
from plnt.sandbox.programs import Programs
from plnt.sandbox.running import Sandbox
from tests.fakes.kube_api import SPEC
from tests.fakes.temporal_client import FakeTemporal

CHARTS = {Runtime.VLLM: chart_dir(Runtime.VLLM)}
TREE = "d" * 64

pytestmark = pytest.mark.timeout(120)


@pytest.fixture(scope="module")
async def kube(control_plane: Sandbox) -> AsyncIterator[Kube]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("KUBECONFIG", str(control_plane.kubeconfig))
        async with open_kube(control_plane.kubeconfig) as kube:
            yield kube


@pytest.fixture(scope="module")
async def deploy(kube: Kube, programs: Programs) -> Deploy:
    releases = Releases(kube, await open_helm(str(programs.helm)), CHARTS, {"nfs": {"server": "w.test", "path": "/"}})
    return Deploy(kube, releases, read_chart_versions(CHARTS))


async def act(call: Any, request: Any) -> Any:
    environment = ActivityEnvironment(cast(Client, FakeTemporal("run-1")))
    environment.info = dataclasses.replace(environment.info, workflow_run_id="run-1")
    return await environment.run(call, request)


async def install(deploy: Deploy, namespace: str, name: str) -> str:
    base = names.base_name(name)
    request = m.InstallRelease(
        ref=Ref(namespace=namespace, name=name),
        base=base,
        release=f"{base}-0a1b2c3d",
        revision="0a1b2c3d",
        spec=Spec(
            runtime=Runtime.VLLM,
            model=Model(name="org/small", storage_uri="s3://b/p"),
            resources=Resources(gpu=1, gpu_class="nvidia.com/h100", memory_gib=8),
        ),
        options=Options(),
        policy=Policy(),
        gpu_class=m.GpuClass(resource_name="nvidia.com/h100"),
        tree=m.Tree(digest=TREE, bytes=1, proof="sha256"),
        replicas=0,
    )
    await act(deploy.install_release, request)
    return request.release


async def test_release_of_a_vanished_workflow_run_is_uninstalled_and_others_stay(
    deploy: Deploy, kube: Kube, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(model, "ORPHAN_AGE", timedelta(0))
    namespace = f"t-{uuid.uuid4().hex[:8]}"
    await create_namespace(kube, namespace, {"pod-security.kubernetes.io/enforce": "baseline"})
    manifest = {"apiVersion": names.API_VERSION, "kind": names.KIND, "metadata": {"name": "kept.1"}, "spec": SPEC}
    await kube.create(WORKFLOW_RUNS, namespace, manifest)
    kept, lost = await install(deploy, namespace, "kept.1"), await install(deploy, namespace, "lost.1")
    foreign = {"owner": "helm", "name": "foreign", "version": "1", "status": "deployed"}
    await kube.create(
        CONFIG_MAPS,
        namespace,
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": "sh.helm.release.v1.foreign.v1", "labels": foreign},
        },
    )
    where = model.Housekeeping(namespaces=[namespace])
    assert (await act(deploy.list_live_trees, where)).trees == [TREE]
    assert (await act(deploy.sweep_releases, where)).releases == [f"{namespace}/{lost}"]
    assert await kube.find(DEPLOYMENTS, namespace, kept) is not None
    assert await kube.find(DEPLOYMENTS, namespace, lost) is None
    assert await kube.find(CONFIG_MAPS, namespace, "sh.helm.release.v1.foreign.v1") is not None
    assert (await act(deploy.sweep_releases, where)).releases == []


@pytest.fixture
def cache(tmp_path: Path) -> Cache:
    cache = Cache(tmp_path)
    cache.prepare()
    tree = tmp_path / "trees" / TREE
    tree.mkdir()
    (tree / ".plnt-manifest.json").write_text('{"files":[]}')
    Leases(tmp_path).take(Lease(workflow_id="rollout.default.a", plan="p", tree=TREE))
    return cache


def make_old(cache: Cache) -> None:
    then = time.time() - 30 * 86_400
    for path in cache.root.rglob("*"):
        os.utime(path, (then, then))


async def collect(cache: Cache, live: list[str]) -> list[str]:
    rules = Rules(7 * 86_400, 85)

    async def step(request: model.CollectCache) -> model.Collected:
        return await cache_keeping.collect_cache(cache, request, rules)

    return list((await act(step, model.CollectCache(live=live))).trees)


async def test_tree_of_a_fresh_lease_stays_and_goes_with_it(cache: Cache) -> None:
    make_old(cache)
    Leases(cache.root).take(Lease(workflow_id="rollout.default.a", plan="p", tree=TREE))
    assert await collect(cache, []) == []
    make_old(cache)
    assert await collect(cache, []) == [TREE]
    assert Leases(cache.root).list() == []


async def test_tree_of_a_live_release_stays_without_a_lease(cache: Cache) -> None:
    make_old(cache)
    assert await collect(cache, [TREE]) == []
    assert (cache.root / "trees" / TREE).is_dir()
