"""plnt inside the cluster that it manages, installed by helm from its chart as a platform engineer does."""

import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from plnt.clients.kube import CLAIMS, DEPLOYMENTS, PODS, Kube
from plnt.model.status import Phase
from plnt.resources import platform_chart
from plnt.sandbox import backing
from plnt.sandbox.cluster import open_kube
from plnt.sandbox.kubelet.volumes import WEIGHTS_SERVER
from plnt.sandbox.product import POLICY, POOLS, PRODUCT
from plnt.sandbox.programs import Programs
from plnt.sandbox.running import Sandbox, running_sandbox
from plnt.sandbox.waiting import wait_until
from tests.command_line import run_command
from tests.docs.shown import ROOT, pick, type_command
from tests.e2e.models import Models
from tests.e2e.place import Place, make_place
from tests.e2e.scenario import FULL_PASS, Scenario, Traffic

SYSTEM = "plnt-system"
PAGE = "docs/installation.md"
SERVERS = (
    *("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler"),
    *("temporal", "s3", "istiod", "envoy", "mesh", "kubelet"),
)
"""The sandbox without plnt's own processes."""

pytestmark = pytest.mark.timeout(400)


@dataclass
class Platform:
    """plnt's release in the cluster."""

    sandbox: Sandbox
    tenant: Place
    folder: Path
    """Where its administrator types: a checkout, and ``my-values.yaml``."""

    async def type(self, start: str) -> str:
        """Type the command of the installation's page that begins like this, word for word."""
        return await type_command(pick(PAGE, start), {}, self.sandbox.environment, self.folder)

    async def helm(self, *arguments: str, values: dict[str, Any] | None = None) -> str:
        """Run the real helm as the administrator in plnt's namespace."""
        command = [str(self.sandbox.programs.helm), *arguments, "--namespace", SYSTEM]
        command += [] if values is None else ["--values", "-"]
        given = b"" if values is None else json.dumps(values).encode()
        return await run_command(command, self.sandbox.environment, given=given)

    async def wait_rolled_out(self) -> None:
        """Wait until every Deployment's newest pods are ready."""
        for name in PRODUCT:
            await self.sandbox.kubectl(
                *("-n", SYSTEM, "rollout", "status", f"deployment/plnt-{name}", "--timeout=120s")
            )

    def values(self, **more: Any) -> dict[str, Any]:
        """Give the values: the one tenant namespace, a static volume in both, one pod of each process."""
        site = self.sandbox.site
        aws = {"AWS_ENDPOINT_URL_S3": site.s3, "AWS_REGION": backing.S3_REGION, "no_proxy": "127.0.0.1"}
        return {
            "namespaces": [self.tenant.namespace],
            "kubernetes": {"server": site.api},
            "temporal": {"address": site.temporal},
            "cache": {
                "claim": {
                    "create": True,
                    "tenantNamespaces": [self.tenant.namespace],
                    "backing": {"nfs": {"server": WEIGHTS_SERVER, "path": "/"}},
                }
            },
            "bridge": {"replicas": 1, "env": POLICY},
            "control": {"replicas": 1},
            "pools": {
                **{name: {"replicas": 1} for name in POOLS},
                "weights": {"replicas": 1, "env": aws, "envFrom": [{"secretRef": {"name": "s3"}}]},
            },
            **more,
        }


@pytest.fixture(scope="module")
async def bare_sandbox(tmp_path_factory: pytest.TempPathFactory, programs: Programs) -> AsyncIterator[Sandbox]:
    """A cluster, Temporal and S3, without plnt."""
    async with running_sandbox(tmp_path_factory.mktemp("cluster"), programs, only=SERVERS) as running:
        yield running


@pytest.fixture(scope="module")
async def platform(bare_sandbox: Sandbox, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Platform]:
    """plnt, installed by the commands that the documents show, where only restricted pods are admitted."""
    folder = tmp_path_factory.mktemp("checkout")
    for name in ("crds", "deploy"):
        (folder / name).symlink_to(ROOT / name)
    async with open_kube(bare_sandbox.kubeconfig) as kube:
        made = Platform(bare_sandbox, await make_place(bare_sandbox, kube, "tenant"), folder)
        (folder / "my-values.yaml").write_text(json.dumps(made.values()))
        for command in ("kubectl apply --server-side", "kubectl create namespace", "kubectl label namespace"):
            await made.type(command)
        await bare_sandbox.kubectl(
            *("-n", SYSTEM, "create", "secret", "generic", "s3"),
            f"--from-literal=AWS_ACCESS_KEY_ID={backing.S3_ACCESS_KEY}",
            f"--from-literal=AWS_SECRET_ACCESS_KEY={backing.S3_SECRET_KEY}",
        )
        notes = await made.type("helm install")
        assert "stay as they are" in notes
        await made.wait_rolled_out()
        yield made


async def test_installed_platform_passes_its_own_test(platform: Platform) -> None:
    assert "Succeeded" in await platform.type("helm test")


async def test_every_process_runs_as_its_own_account_and_mounts_a_token_only_where_it_needs_one(
    platform: Platform,
) -> None:
    pods, _ = await platform.tenant.kube.list(PODS, SYSTEM, labels="app.kubernetes.io/name=plnt")
    accounts = {pod["metadata"]["labels"]["app.kubernetes.io/component"]: pod["spec"] for pod in pods}
    assert {name: spec["serviceAccountName"] for name, spec in accounts.items()} == {
        name: f"plnt-{name}" for name in PRODUCT
    }
    with_token = {name for name, spec in accounts.items() if any("projected" in v for v in spec["volumes"])}
    assert with_token == {*PRODUCT} - {"control", "smoke"}


async def test_run_is_ready_under_the_accounts_rights_and_an_upgrade_in_its_middle_loses_nothing(
    platform: Platform,
) -> None:
    models, scenario = Models(platform.sandbox), Scenario(platform.tenant)
    await scenario.apply(await models.uri("good"))
    async with scenario.recorded():
        await scenario.wait_phase(Phase.READY, 1, 120)
    assert scenario.phases(1)[-1] is Phase.READY
    generation = await scenario.apply(await models.uri("other"))
    async with scenario.recorded():
        await scenario.wait_phase(Phase.DEPLOYING, generation, 120)
        await platform.helm("upgrade", "plnt", str(platform_chart()), values=platform.values(logLevel="DEBUG"))
        status = await scenario.wait_phase(Phase.READY, generation, 180)
        await platform.wait_rolled_out()
    assert set(scenario.phases(generation)) <= set(FULL_PASS)
    assert len(await scenario.releases()) == 1
    await _check_answers(platform.sandbox, status["endpoint"])


async def test_janitor_needs_no_right_beyond_the_listed_namespace(platform: Platform) -> None:
    client = await platform.sandbox.connect_temporal()
    done = "WorkflowType = 'Janitor' AND ExecutionStatus = 'Completed'"
    before = (await client.count_workflows(done)).count
    await type_command(pick("docs/operations.md", "temporal schedule trigger"), {}, platform.sandbox.environment)

    async def is_done() -> bool:
        return (await client.count_workflows(done)).count > before

    await wait_until(is_done, 60)


async def _check_answers(sandbox: Sandbox, endpoint: str) -> None:
    traffic = Traffic(sandbox.site.envoy, endpoint)
    async with aiohttp.ClientSession() as session:
        assert (await traffic.send(session)).fault == ""


async def test_uninstalling_the_platform_leaves_runs_and_serving_releases_alone(platform: Platform) -> None:
    scenario = Scenario(platform.tenant)
    releases = await scenario.releases()
    await platform.type("helm uninstall")
    await _wait_no_pods(platform.tenant.kube)
    status = await scenario.status()
    assert status["phase"] == "Ready"
    assert await scenario.releases() == releases
    assert await platform.tenant.kube.find(CLAIMS, platform.tenant.namespace, "plnt-weights") is not None
    deployments, _ = await platform.tenant.kube.list(DEPLOYMENTS, platform.tenant.namespace)
    assert [one["metadata"]["name"] for one in deployments] == sorted(releases)
    await _check_answers(platform.sandbox, status["endpoint"])


async def _wait_no_pods(kube: Kube) -> None:
    async def are_gone() -> bool:
        return not (await kube.list(PODS, SYSTEM))[0]

    await wait_until(are_gone, 60)


async def test_platform_installed_again_takes_up_the_runs_that_it_finds(platform: Platform) -> None:
    scenario = Scenario(platform.tenant)
    await platform.helm("install", "plnt", str(platform_chart()), values=platform.values())
    await platform.wait_rolled_out()
    await platform.type("kubectl delete workflowruns --all")
    assert await scenario.releases() == set()
