"""Rights that only rare turns of events use."""

import json

from plnt.clients.kube import CONFIG_MAPS, SERVICES
from plnt.model.options import VALUES_FROM
from plnt.model.status import Phase
from tests.e2e.models import Models
from tests.e2e.place import Place
from tests.e2e.scenario import Scenario
from tests.e2e.test_1_first_rollout import check_nothing_left


async def test_front_service_that_somebody_deletes_during_the_test_is_made_again(place: Place, models: Models) -> None:
    scenario = Scenario(place)
    await scenario.apply(await models.uri("measured", ttftMs=200))
    await scenario.wait_phase(Phase.SMOKE_TESTING, 1)
    await scenario.kubectl("delete", "service", scenario.base)
    status = await scenario.wait_phase(Phase.READY, 1)
    front = await place.kube.get(SERVICES, place.namespace, scenario.base)
    assert front["spec"]["selector"]
    assert status["endpoint"].startswith(f"http://{scenario.base}.{place.namespace}.")


async def test_last_words_of_an_engine_that_refuses_an_argument_are_in_the_status(place: Place, models: Models) -> None:
    values = {"extraArgs": ["--made-up-argument"]}
    manifest = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "wrong", "namespace": place.namespace},
        "data": {"values.yaml": json.dumps(values)},
    }
    await place.kube.create(CONFIG_MAPS, place.namespace, manifest)
    scenario = Scenario(place)
    await scenario.apply(await models.uri("good"), annotations={VALUES_FROM: "wrong"})
    status = await scenario.wait_phase(Phase.ROLLED_BACK, 1)
    assert status["lastError"].startswith("DeployFailed: ")
    assert "its log ends: " in status["lastError"]
    assert "--made-up-argument" in status["lastError"]
    await scenario.kubectl("delete", "configmap", "wrong")
    await check_nothing_left(scenario)
