"""A Temporal dev server and an API server double with the bridge's worker between them."""

import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from temporalio.client import Client, WorkflowHandle
from temporalio.common import SearchAttributeKey
from temporalio.contrib.pydantic import pydantic_data_converter
from temporalio.testing import WorkflowEnvironment

from bridge.__main__ import open_worker
from bridge.runs import Runs
from plnt.clients.kube import Kube
from plnt.model import names
from plnt.model.poke import Seen, read_seen
from plnt.settings import BridgeSettings
from tests.fakes.kube_api import KubeApi, serve_kube_api

TEMPORAL = Path(sys.executable).with_name("temporal")
SEARCH_ATTRIBUTES = [
    *(SearchAttributeKey.for_keyword(f"Plnt{name}") for name in ("Phase", "Namespace", "Model", "Runtime", "GpuClass")),
    SearchAttributeKey.for_int("PlntGeneration"),
]


@dataclass
class BridgeServer:
    """What a test of the bridge talks to."""

    client: Client
    api: KubeApi
    kube: Kube
    runs: Runs

    def seen(self, name: str) -> Seen:
        """The object as the bridge's watch would give it."""
        return read_seen(self.api.objects[("default", name)])

    def reporter(self, name: str) -> WorkflowHandle[Any, Any]:
        """The status reporter of an object."""
        return self.client.get_workflow_handle(names.reporter_id("default", name))

    def rollout(self, name: str) -> WorkflowHandle[Any, Any]:
        """The rollout of an object."""
        return self.client.get_workflow_handle(names.rollout_id("default", name))

    def status(self, name: str) -> dict[str, Any]:
        """The status as it stands."""
        return self.api.objects[("default", name)].get("status") or {}


@asynccontextmanager
async def serve_bridge(*server_arguments: str, rollout_queue: str = "no-worker") -> AsyncIterator[BridgeServer]:
    """Serve all of it; rollouts go to a queue of the test's own."""
    async with (
        await WorkflowEnvironment.start_local(
            data_converter=pydantic_data_converter,
            dev_server_existing_path=str(TEMPORAL),
            dev_server_extra_args=_flags(server_arguments),
            search_attributes=SEARCH_ATTRIBUTES,
        ) as env,
        serve_kube_api() as (api, kube),
        open_worker(env.client, kube, BridgeSettings.read({})),
    ):
        yield BridgeServer(env.client, api, kube, Runs(env.client, rollout_queue=rollout_queue))


def _flags(values: Sequence[str]) -> list[str]:
    return [part for value in values for part in ("--dynamic-config-value", value)]
