"""No process of the sandbox dials the addresses that its pods report."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import aiohttp

from plnt.model.status import Phase
from tests.e2e.models import Models
from tests.e2e.place import Place
from tests.e2e.scenario import Scenario


async def test_envoy_knows_a_serving_pod_by_its_loopback_address_alone(place: Place, models: Models) -> None:
    scenario = Scenario(place)
    await scenario.apply(await models.uri("good"))
    await scenario.wait_phase(Phase.READY, 1)
    reported = await scenario.kubectl("get", "pods", "-o=jsonpath={.items[0].status.podIP}")
    assert reported.startswith("10.")
    admin = f"http://127.0.0.1:{place.sandbox.site.block['envoy-admin']}/config_dump?include_eds"
    async with aiohttp.ClientSession() as session, session.get(admin) as response:
        clusters = json.loads(await response.read())
    dialled = re.findall(r'"address": "([0-9.]+)"', json.dumps(clusters))
    assert reported.replace("10.", "127.", 1) in dialled
    assert [address for address in dialled if address.startswith("10.")] == []


def test_no_python_process_dialled_a_pods_reported_address(dial_audit: Path) -> None:
    probe = "import sys; sys.audit('socket.connect', None, ('10.255.0.1', 80))"
    subprocess.run([sys.executable, "-c", probe, "probe"], check=True, env=dict(os.environ))
    noted = dial_audit.read_text().splitlines()
    assert noted == ["-c probe dialled 10.255.0.1:80"]
