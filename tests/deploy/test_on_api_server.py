"""The platform chart and the runtimes' pods on a real API server: rights in both modes, and security levels."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from plnt.clients.kube import DEPLOYMENTS, Kube, Resource
from plnt.model.options import CREDENTIALS
from plnt.model.workflow_run import Quantization, Runtime
from plnt.resources import platform_chart
from plnt.sandbox.cluster import ClusterUnprepared, create_namespace, open_kube
from plnt.sandbox.product import PRODUCT
from plnt.sandbox.programs import Programs
from plnt.sandbox.running import Sandbox
from plnt.sandbox.waiting import wait_until
from tests.charts.rendering import VOLUME, render_release
from tests.deploy.test_chart import DEPLOY, run_helm
from tests.e2e.audit import Use, list_grants

SYSTEM = "plnt-system"
REVIEWS = Resource("authorization.k8s.io/v1", "subjectaccessreviews")
LEVEL = "pod-security.kubernetes.io/enforce"
WAIT_SECONDS = 60.0
CLUSTER_WIDE = {"gpu"}
"""Accounts whose rights are of the whole cluster in both modes."""
EXAMPLE = DEPLOY.parent / "examples" / "private-weights"
CLAIM = {"persistentVolumeClaim": {"claimName": "plnt-weights"}}

pytestmark = pytest.mark.timeout(240)


def render_rights(programs: Programs, release: str, values: dict[str, Any]) -> tuple[str, set[Use]]:
    """Give the manifests of roles and bindings, and every single grant of them."""
    arguments = ("template", release, str(platform_chart()), "-n", SYSTEM, "--show-only", "templates/rbac.yaml")
    done = run_helm(programs, *arguments, values=values)
    assert done.returncode == 0, done.stderr
    return done.stdout, list_grants(body for body in yaml.safe_load_all(done.stdout) if body)


async def is_allowed(kube: Kube, account: str, use: Use, namespace: str, name: str = "") -> bool:
    """Ask the API server; no namespace = the whole cluster, no name = every object."""
    resource, _, sub = use.resource.partition("/")
    asked = {"group": use.group, "resource": resource, "subresource": sub, "verb": use.verb}
    asked |= {"namespace": namespace, "name": name}
    spec = {"user": f"system:serviceaccount:{SYSTEM}:{account}", "resourceAttributes": asked}
    body = {"apiVersion": REVIEWS.api, "kind": "SubjectAccessReview", "spec": spec}
    return bool((await kube.create(REVIEWS, None, body))["status"]["allowed"])


async def list_allowed(kube: Kube, release: str, uses: set[Use], namespace: str) -> set[Use]:
    ordered = sorted(uses)
    answers = await asyncio.gather(*(is_allowed(kube, f"{release}-{use.component}", use, namespace) for use in ordered))
    return {use for use, allowed in zip(ordered, answers, strict=True) if allowed}


@pytest.mark.parametrize(
    ("release", "values", "open_places"),
    [("wide", {}, {"team-a", "team-b", ""}), ("listed", {"namespaces": ["team-a"]}, {"team-a"})],
    ids=["all namespaces", "listed namespaces"],
)
async def test_api_server_allows_each_process_all_that_a_rollout_uses_where_it_serves_and_nothing_elsewhere(
    control_plane: Sandbox,
    programs: Programs,
    tmp_path: Path,
    release: str,
    values: dict[str, Any],
    open_places: set[str],
) -> None:
    _, used = render_rights(programs, release, {})
    manifests, _ = render_rights(programs, release, values)
    (tmp_path / "rights.yaml").write_text(manifests)
    everywhere = {use for use in used if use.component in CLUSTER_WIDE}
    async with open_kube(control_plane.kubeconfig) as kube:
        await asyncio.gather(*(create_namespace(kube, name) for name in ("team-a", "team-b", SYSTEM)))
        await control_plane.kubectl("apply", "-f", str(tmp_path / "rights.yaml"))

        async def has_learned() -> bool:
            return await list_allowed(kube, release, used, "team-a") == used

        await wait_until(has_learned, WAIT_SECONDS)
        for place in ("team-a", "team-b", ""):
            expected = used if place in open_places else everywhere
            assert await list_allowed(kube, release, used, place) == expected, place or "the whole cluster"
        secrets = {Use(name, "", "secrets", verb) for name in PRODUCT for verb in ("get", "list", "create")}
        assert await list_allowed(kube, release, secrets, "team-a") == set()


async def test_access_of_the_example_opens_the_one_secret_that_its_run_names(control_plane: Sandbox) -> None:
    run = yaml.safe_load((EXAMPLE / "workflowrun.yaml").read_text())
    secret = run["metadata"]["annotations"][CREDENTIALS]
    page = (DEPLOY.parent / "docs" / "security.md").read_text()
    assert (EXAMPLE / "access.yaml").read_text().partition("\n")[2] in page
    reading = Use("weights", "", "secrets", "get")
    async with open_kube(control_plane.kubeconfig) as kube:
        await asyncio.gather(*(create_namespace(kube, name) for name in ("team-a", SYSTEM)))
        await control_plane.kubectl("create", "--dry-run=server", "-f", str(EXAMPLE / "workflowrun.yaml"))
        await control_plane.kubectl("apply", "-f", str(EXAMPLE / "access.yaml"))
        await wait_until(lambda: is_allowed(kube, "plnt-weights", reading, "team-a", secret), WAIT_SECONDS)
        assert not await is_allowed(kube, "plnt-weights", reading, "team-a", "another")
        assert not await is_allowed(kube, "plnt-weights", reading, "team-a")
        assert not await is_allowed(kube, "plnt-deploy", reading, "team-a", secret)


@pytest.mark.parametrize("file", ["cluster.yaml", "single-namespace.yaml"])
async def test_manifests_without_helm_make_pods_that_the_restricted_level_admits(
    control_plane: Sandbox, file: str
) -> None:
    manifests = str(DEPLOY / "manifests" / file)
    async with open_kube(control_plane.kubeconfig) as kube:
        await control_plane.kubectl("apply", "-f", manifests)
        try:

            async def have_pods() -> bool:
                found, _ = await kube.list(DEPLOYMENTS, SYSTEM)
                made = {one["metadata"]["name"]: one.get("status", {}).get("replicas", 0) for one in found}
                return made == {one["metadata"]["name"]: one["spec"]["replicas"] for one in found}

            await wait_until(have_pods, WAIT_SECONDS)
            deployments, _ = await kube.list(DEPLOYMENTS, SYSTEM)
            assert {one["metadata"]["name"] for one in deployments} == {f"plnt-{name}" for name in PRODUCT}
        finally:
            await take_away(control_plane, manifests)


async def take_away(sandbox: Sandbox, manifests: str) -> None:
    """Delete what was applied, and pods by force: one bound to another test's node has no kubelet to end it."""
    await sandbox.kubectl("delete", "-f", manifests, "--wait=false")
    await sandbox.kubectl("-n", SYSTEM, "delete", "pods", "--all", "--force", "--grace-period=0")
    await sandbox.kubectl("wait", "--for=delete", f"namespace/{SYSTEM}", "--timeout=90s")


async def find_refusal(sandbox: Sandbox, namespace: str, template: dict[str, Any], folder: Path) -> str:
    """Give what admission says against a pod; empty when it takes it. Nothing is made."""
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "probe"}, "spec": template["spec"]}
    (folder / "pod.json").write_text(json.dumps(pod))
    try:
        await sandbox.kubectl("-n", namespace, "create", "--dry-run=server", "-f", str(folder / "pod.json"))
    except ClusterUnprepared as error:
        return str(error)
    return ""


@pytest.mark.parametrize("runtime", list(Runtime))
async def test_runtime_pod_is_admitted_at_baseline_and_at_restricted_where_its_image_needs_no_root(
    control_plane: Sandbox, programs: Programs, tmp_path: Path, runtime: Runtime
) -> None:
    template = render_release(programs, runtime, Quantization.FP16)["Deployment"]["spec"]["template"]
    (weights,) = (volume for volume in template["spec"]["volumes"] if "nfs" in volume)
    assert weights["nfs"].items() >= VOLUME["nfs"].items()
    async with open_kube(control_plane.kubeconfig) as kube:
        for level in ("baseline", "restricted"):
            await create_namespace(kube, f"at-{level}", {LEVEL: level})
    assert await find_refusal(control_plane, "at-baseline", template, tmp_path) == ""
    assert 'volume "weights" uses restricted volume type "nfs"' in await find_refusal(
        control_plane, "at-restricted", template, tmp_path
    )
    del weights["nfs"]
    weights |= CLAIM
    refusal = await find_refusal(control_plane, "at-restricted", template, tmp_path)
    if template["spec"]["securityContext"].get("runAsNonRoot"):
        assert refusal == ""
    else:
        assert "runAsNonRoot != true" in refusal
        assert refusal.count("must set") == 1
