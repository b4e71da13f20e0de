"""The sandbox itself, as its user and as the other tests see it."""

import asyncio

from plnt.sandbox import record, report
from plnt.sandbox.component import Component
from plnt.sandbox.components import list_components
from plnt.sandbox.kubelet import control
from plnt.sandbox.running import Sandbox
from plnt.sandbox.waiting import wait_until
from tests.e2e.place import GPUS, Place


async def test_every_component_runs_and_listens_where_the_record_says(sandbox: Sandbox) -> None:
    lines, well = report.render_status(record.read_entries(sandbox.state.processes))
    assert well, "\n".join(lines)
    shown = {line.split()[0] for line in lines[1:]}
    expected: list[Component] = list_components(sandbox.site)
    assert shown == {record.LAUNCHER, *(component.name for component in expected)}


async def test_place_has_gpus_that_no_other_place_has(place: Place) -> None:
    path = "{.items[*].status.allocatable}"

    async def is_there() -> bool:
        return place.gpu_class in await place.sandbox.kubectl("get", "nodes", f"-o=jsonpath={path}")

    await wait_until(is_there, 60)
    said = await place.sandbox.kubectl(
        "get", "node", f"{place.namespace}-a", f"-o=jsonpath={path.replace('items[*].', '')}"
    )
    assert f'"{place.gpu_class}":"{GPUS}"' in said
    place.add_fault(control.Fault(fault=control.FaultKind.OOM))
    assert control.load(place.sandbox.state.root).find_fault(place.namespace, {}, control.FaultKind.OOM)


async def test_killed_pool_is_back_at_its_queue(sandbox: Sandbox) -> None:
    before = sandbox.supervisor.pid("smoke")
    sandbox.supervisor.kill("smoke")

    async def is_another() -> bool:
        return sandbox.supervisor.pid("smoke") not in {None, before}

    await wait_until(is_another, 60)
    await sandbox.wait_polling(["smoke"])


async def test_engines_of_two_sandboxes_cannot_meet(sandbox: Sandbox) -> None:
    reserved = f"127.{sandbox.site.block.range}.255.254"
    _, writer = await asyncio.open_connection(reserved, 20_999)
    writer.close()
