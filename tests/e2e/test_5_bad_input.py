"""Bad input is refused with the field and the remedy, by the API server or within seconds by Validating."""

from typing import Any

import pytest

from plnt.clients.kube import SERVICES
from plnt.errors import PlntError
from plnt.model.status import Phase
from tests.e2e.models import Models
from tests.e2e.place import Place
from tests.e2e.scenario import Scenario
from tests.e2e.test_1_first_rollout import check_nothing_left


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        pytest.param({"model": {"storageUri": "http://x/y"}}, "spec.model.storageUri", id="unknown scheme"),
        pytest.param({"canary": {"trafficPercent": 0}}, "spec.canary.trafficPercent", id="no traffic"),
        pytest.param({"replicas": {"min": 3, "max": 2}}, "spec.replicas", id="min over max"),
    ],
)
async def test_api_server_refuses_it_and_names_the_field(place: Place, changes: dict[str, Any], field: str) -> None:
    with pytest.raises(PlntError) as refused:
        await Scenario(place).apply("s3://plnt-models/none", **changes)
    assert field in str(refused.value)


@pytest.mark.parametrize(
    ("uri", "changes", "words"),
    [
        pytest.param("s3://no-such-bucket/x", {}, ["WeightsNotFound", "storageUri", "no-such-bucket"], id="no bucket"),
        pytest.param("s3://plnt-models/nothing", {}, ["WeightsNotFound", "storageUri", "nothing"], id="no object"),
        pytest.param(
            None, {"resources": {"gpuClass": "plnt.test/none"}}, ["GpuClassUnknown", "gpuClass"], id="no class"
        ),
        pytest.param(
            None, {"canary": {"smokeTest": {"prompts": 1001}}}, ["SpecInvalid", "prompts", "1000"], id="prompts"
        ),
        pytest.param(None, {"replicas": {"max": 2147483648}}, ["SpecInvalid", "replicas.max", "2147483647"], id="max"),
        pytest.param(None, {"resources": {"gpu": 9}}, ["SpecInvalid", "resources.gpu", "8"], id="gpu of no node"),
        pytest.param(None, {"resources": {"memoryGiB": 2000}}, ["SpecInvalid", "memoryGiB", "1024"], id="memory"),
        pytest.param(
            None, {"annotations": {"plnt.work/surprise": "1"}}, ["SpecInvalid", "plnt.work/surprise"], id="annotation"
        ),
    ],
)
async def test_validating_fails_it_within_seconds_and_says_what_to_do(
    place: Place, models: Models, uri: str | None, changes: dict[str, Any], words: list[str]
) -> None:
    scenario = Scenario(place)
    async with scenario.recorded():
        await scenario.apply(uri or await models.uri("good"), **changes)
        status = await scenario.wait_phase(Phase.FAILED, 1, seconds=60)
    for word in words:
        assert word in status["lastError"]
    assert Phase.PULLING_WEIGHTS not in scenario.phases(1)
    await check_nothing_left(scenario)


async def test_second_of_two_names_with_one_base_is_refused_and_the_first_keeps_it(
    place: Place, models: Models
) -> None:
    first, second = Scenario(place, "twin.a"), Scenario(place, "twin-a")
    assert first.base == second.base
    uri = await models.uri("good")
    await first.apply(uri)
    await first.wait_phase(Phase.READY, 1)
    await second.apply(uri)
    status = await second.wait_phase(Phase.FAILED, 1, seconds=60)
    assert status["lastError"].startswith("NameTaken: ")
    for word in (f"Service {place.namespace}/twin-a belongs to WorkflowRun twin.a", "metadata.name"):
        assert word in status["lastError"]
    await second.kubectl("delete", "workflowrun", "twin-a", "--timeout=60s")
    assert (await first.status())["phase"] == Phase.READY
    assert len(await first.releases()) == 1
    assert await place.kube.find(SERVICES, place.namespace, "twin-a") is not None
