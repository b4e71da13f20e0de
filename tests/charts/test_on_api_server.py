"""The charts through pyhelm3 on a real API server: installed, upgraded, rolled back, and with extra values."""

import uuid
from collections.abc import AsyncIterator
from typing import Any

import pytest
import yaml
from temporalio.testing import ActivityEnvironment

from activities.releases import Releases
from plnt.clients.helm import Helm, open_helm
from plnt.clients.kube import CONFIG_MAPS, DEPLOYMENTS, SERVICES, Kube
from plnt.errors import SpecInvalid
from plnt.model import messages as m
from plnt.model.desired import Policy, Ref
from plnt.model.options import Options
from plnt.model.workflow_run import Quantization, Runtime
from plnt.resources import chart_dir
from plnt.sandbox.cluster import NAMESPACES, create_namespace, open_kube
from plnt.sandbox.programs import Programs
from plnt.sandbox.running import Sandbox
from tests.charts.rendering import COMMON_EXTRA, EXTRA, VOLUME, make_request, make_values

pytestmark = pytest.mark.timeout(120)

RELEASE = "llama-3-1-70b-0a1b2c3d"


@pytest.fixture(scope="module")
async def kube(control_plane: Sandbox) -> AsyncIterator[Kube]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("KUBECONFIG", str(control_plane.kubeconfig))
        async with open_kube(control_plane.kubeconfig) as kube:
            yield kube


@pytest.fixture(scope="module")
async def helm(programs: Programs) -> Helm:
    return await open_helm(str(programs.helm))


@pytest.fixture
async def namespace(kube: Kube) -> AsyncIterator[str]:
    name = f"c-{uuid.uuid4().hex[:8]}"
    await create_namespace(kube, name)
    yield name
    await kube.delete(NAMESPACES, None, name)


@pytest.fixture
def releases(kube: Kube, helm: Helm) -> Releases:
    return Releases(kube, helm, {runtime: chart_dir(runtime) for runtime in Runtime}, VOLUME)


async def read_arguments(kube: Kube, namespace: str) -> list[str]:
    deployment = await kube.get(DEPLOYMENTS, namespace, RELEASE)
    arguments: list[str] = deployment["spec"]["template"]["spec"]["containers"][0]["args"]
    return arguments


@pytest.mark.parametrize("runtime", list(Runtime))
async def test_release_is_installed_upgraded_rolled_back_and_leaves_nothing(
    kube: Kube, helm: Helm, namespace: str, runtime: Runtime
) -> None:
    chart, labels = chart_dir(runtime), {"plnt.work/owner": "llama-3-1-70b"}
    plain = make_values(runtime, Quantization.FP16, online=False, extra=False)
    await helm.install(RELEASE, namespace, chart, plain, labels)
    first = await read_arguments(kube, namespace)
    extra = make_values(runtime, Quantization.FP16, online=False, extra=True)
    await helm.install(RELEASE, namespace, chart, extra, labels)
    assert await read_arguments(kube, namespace) == [*first, *EXTRA[runtime]["extraArgs"]]
    await helm.roll_back(RELEASE, namespace, 1)
    assert await read_arguments(kube, namespace) == first
    await helm.uninstall(RELEASE, namespace)
    for resource in (DEPLOYMENTS, SERVICES, CONFIG_MAPS):
        found, _ = await kube.list(resource, namespace)
        assert [one["metadata"]["name"] for one in found if one["metadata"]["name"] != "kube-root-ca.crt"] == []


async def put_values(kube: Kube, namespace: str, values: Any) -> None:
    manifest = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "extra", "namespace": namespace},
        "data": {"values.yaml": yaml.safe_dump(values)},
    }
    await kube.apply(CONFIG_MAPS, manifest)


def survey(namespace: str, runtime: Runtime) -> m.SurveyRequest:
    ref = Ref(namespace=namespace, name="llama-3.1-70b")
    return m.SurveyRequest(
        ref=ref, base="llama-3-1-70b", policy=Policy(), claim=False, runtime=runtime, values_from="extra"
    )


@pytest.mark.parametrize("runtime", list(Runtime))
async def test_extra_values_are_accepted_and_described(
    kube: Kube, releases: Releases, namespace: str, runtime: Runtime
) -> None:
    await put_values(kube, namespace, {**COMMON_EXTRA, **EXTRA[runtime], "image": {"tag": "v9"}})
    found = await releases.check_values(survey(namespace, runtime))
    assert found is not None
    assert (found.name, found.fault, found.image_tag, found.request_tokens) == ("extra", "", "v9", 4096)
    assert found.digest


@pytest.mark.parametrize(
    ("values", "words"),
    [
        (None, ["does not exist"]),
        ({"model": {"name": "x"}}, ["model is set by plnt"]),
        ({"securityContext": {"privileged": True}}, ["securityContext is set by plnt or by the installation"]),
        ({"extraArgs": ["--served-model-name", "x"]}, ["--served-model-name is set by the chart"]),
        ({"extraArgs": ["--shutdown-timeout", "9"]}, ["--shutdown-timeout is set by the chart"]),
        ({"extraArgs": ["--quant=awq"]}, ["--quant=awq is set by the chart"]),
        ({"extraArgs": [4096]}, ["extraArgs", "string"]),
        ({"extraEnv": [{"name": "HF_HUB_OFFLINE", "value": "0"}]}, ["HF_HUB_OFFLINE is set by the chart"]),
        ({"image": {"name": "x"}}, ["'name' not allowed"]),
    ],
)
async def test_extra_values_that_cannot_be_used_are_told_with_their_key(
    kube: Kube, releases: Releases, namespace: str, values: Any, words: list[str]
) -> None:
    if values is not None:
        await put_values(kube, namespace, values)
    found = await releases.check_values(survey(namespace, Runtime.VLLM))
    assert found is not None
    assert found.fault.startswith(f"annotation plnt.work/values-from: ConfigMap {namespace}/extra")
    for word in words:
        assert word in found.fault


async def test_values_that_changed_after_the_check_are_not_installed(
    kube: Kube, releases: Releases, namespace: str
) -> None:
    await put_values(kube, namespace, EXTRA[Runtime.VLLM])
    found = await releases.check_values(survey(namespace, Runtime.VLLM))
    assert found is not None
    request = make_request(Runtime.VLLM, Quantization.FP16, online=False).model_copy(
        update={
            "ref": Ref(namespace=namespace, name="llama-3.1-70b"),
            "options": Options(values_from="extra"),
            "values_digest": found.digest,
        }
    )
    await put_values(kube, namespace, {"extraArgs": ["--enforce-eager"]})
    with pytest.raises(SpecInvalid, match="was changed after it was checked"):
        await ActivityEnvironment().run(releases.install, request)
    assert await kube.find(DEPLOYMENTS, namespace, RELEASE) is None
