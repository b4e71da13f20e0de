"""Rights that only rare turns of events use."""

from plnt.clients.kube import SERVICES
from plnt.model.status import Phase
from tests.e2e.models import Models
from tests.e2e.place import Place
from tests.e2e.scenario import Scenario


async def test_front_service_that_somebody_deletes_during_the_test_is_made_again(place: Place, models: Models) -> None:
    scenario = Scenario(place)
    await scenario.apply(await models.uri("measured", ttftMs=200))
    await scenario.wait_phase(Phase.SMOKE_TESTING, 1)
    await scenario.kubectl("delete", "service", scenario.base)
    status = await scenario.wait_phase(Phase.READY, 1)
    front = await place.kube.get(SERVICES, place.namespace, scenario.base)
    assert front["spec"]["selector"]
    assert status["endpoint"].startswith(f"http://{scenario.base}.{place.namespace}.")
