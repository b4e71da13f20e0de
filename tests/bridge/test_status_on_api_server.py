"""Status as a real API server keeps it and the real kubectl reads it."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from temporalio.testing import ActivityEnvironment

from bridge.desired import DesiredActivities
from bridge.status import StatusActivities
from plnt.clients.kube import WORKFLOW_RUNS, Kube
from plnt.model import names
from plnt.model.desired import Policy, Ref
from plnt.model.messages import DropFinalizer, Target
from plnt.model.poke import pending_report, read_seen
from plnt.model.status import Phase, PhaseReport, StatusWrite, StatusWritten
from plnt.sandbox.cluster import ClusterUnprepared, open_kube
from plnt.sandbox.running import Sandbox
from tests.fakes.kube_api import SPEC

NAME = "status-on-api-server"


class Subject:
    """One WorkflowRun on the API server."""

    def __init__(self, kube: Kube, cluster: Sandbox) -> None:
        self._kube, self._cluster = kube, cluster
        self._writer = StatusActivities(kube, "test")

    async def write(self, phase: Phase, generation: int, **changes: Any) -> StatusWritten:
        """Write a report of the live object's uid."""
        uid = (await self.read())["metadata"]["uid"]
        fields = {"uid": uid, "generation": generation, "run_id": "run", "phase": phase}
        return await self.send(PhaseReport(**{**fields, **changes}))

    async def send(self, report: PhaseReport | None) -> StatusWritten:
        """Write a report."""
        write = StatusWrite(namespace="default", name=NAME, report=report)
        return await ActivityEnvironment().run(self._writer.write_status, write)

    async def read(self) -> dict[str, Any]:
        """Read the object."""
        return await self._kube.get(WORKFLOW_RUNS, "default", NAME)

    async def is_ready_for_kubectl(self) -> bool:
        """Ask ``kubectl wait`` for the condition Ready, for one second."""
        try:
            await self._cluster.kubectl("wait", "--for=condition=Ready", f"workflowrun/{NAME}", "--timeout=1s")
        except ClusterUnprepared:
            return False
        return True

    async def change_spec(self) -> None:
        """Raise the generation."""
        await self._kube.merge(WORKFLOW_RUNS, "default", NAME, {"spec": {"replicas": {"max": 7}}})


@pytest.fixture
async def kube(control_plane: Sandbox) -> AsyncIterator[Kube]:
    async with open_kube(control_plane.kubeconfig) as kube:
        yield kube


@pytest.fixture
async def subject(kube: Kube, control_plane: Sandbox) -> AsyncIterator[Subject]:
    body = {"apiVersion": names.API_VERSION, "kind": names.KIND, "metadata": {"name": NAME}, "spec": SPEC}
    await kube.create(WORKFLOW_RUNS, "default", body)
    yield Subject(kube, control_plane)
    await kube.delete(WORKFLOW_RUNS, "default", NAME)


async def test_kubectl_waits_for_the_newest_generation_to_be_ready(subject: Subject) -> None:
    await subject.write(Phase.READY, 1, endpoint="http://one:8000")
    assert await subject.is_ready_for_kubectl()
    await subject.change_spec()
    assert not await subject.is_ready_for_kubectl()
    pending = pending_report(read_seen(await subject.read()))
    await subject.send(pending)
    status = (await subject.read())["status"]
    assert (status["phase"], status["endpoint"], status["observedGeneration"]) == ("Pending", "http://one:8000", 2)
    assert not await subject.is_ready_for_kubectl()
    await subject.write(Phase.READY, 2, endpoint="http://one:8000")
    assert await subject.is_ready_for_kubectl()


async def test_fields_that_a_report_leaves_out_are_removed(subject: Subject) -> None:
    await subject.write(Phase.FAILED, 1, last_error="SpecInvalid: no", endpoint="http://one:8000")
    await subject.write(Phase.VALIDATING, 1)
    assert not {"lastError", "endpoint"} & (await subject.read())["status"].keys()


async def test_report_that_says_nothing_new_leaves_the_object_as_it_is(subject: Subject) -> None:
    assert (await subject.write(Phase.DEPLOYING, 1)).at is not None
    version = (await subject.read())["metadata"]["resourceVersion"]
    assert (await subject.write(Phase.DEPLOYING, 1)).at is None
    assert (await subject.read())["metadata"]["resourceVersion"] == version


async def test_report_for_another_uid_writes_nothing_and_names_the_live_one(subject: Subject) -> None:
    written = await subject.write(Phase.READY, 1, uid="another")
    live = await subject.read()
    assert written.live_uid == live["metadata"]["uid"]
    assert "status" not in live


async def test_kubectl_shows_each_phase_as_an_event(subject: Subject, control_plane: Sandbox) -> None:
    for phase in (Phase.VALIDATING, Phase.ROLLED_BACK):
        await subject.write(phase, 1, last_error="SmokeTestFailed: slow" if phase is Phase.ROLLED_BACK else "")
    uid = (await subject.read())["metadata"]["uid"]
    said = json.loads(await control_plane.kubectl("get", "events", "-o", "json"))
    found = {one["reason"]: one for one in said["items"] if one["involvedObject"]["uid"] == uid}
    assert found["Validating"]["type"] == "Normal"
    assert (found["RolledBack"]["type"], found["RolledBack"]["message"]) == ("Warning", "SmokeTestFailed: slow")


async def test_finalizer_holds_a_deleted_object_until_it_is_dropped(subject: Subject, kube: Kube) -> None:
    desired, ref = DesiredActivities(kube, Policy()), Ref(namespace="default", name=NAME)
    loaded = (await ActivityEnvironment().run(desired.load_desired, Target(ref=ref))).desired
    assert loaded is not None
    assert loaded.spec.replicas.max == 3
    await kube.delete(WORKFLOW_RUNS, "default", NAME)
    deleting = (await ActivityEnvironment().run(desired.load_desired, Target(ref=ref))).desired
    assert deleting is not None
    assert (deleting.deleting, deleting.uid) == (True, loaded.uid)
    await ActivityEnvironment().run(desired.drop_finalizer, DropFinalizer(ref=ref, uid=loaded.uid))
    async with asyncio.timeout(60):
        while await kube.find(WORKFLOW_RUNS, "default", NAME) is not None:
            pass
