"""The smoke pool as its workflow and the status reporter see it."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from uuid import uuid4

import pytest
from temporalio import workflow
from temporalio.client import Client, WorkflowFailureError, WorkflowHandle
from temporalio.common import RetryPolicy
from temporalio.contrib.pydantic import pydantic_data_converter
from temporalio.exceptions import ActivityError, ApplicationError
from temporalio.testing import WorkflowEnvironment
from temporalio.worker import UnsandboxedWorkflowRunner, Worker

from activities import smoke
from activities.boundary import Boundary
from plnt.model import names
from plnt.model.desired import Ref
from plnt.model.messages import RunSmokeTest, SmokeReport
from plnt.model.status import Progress
from plnt.sandbox.programs import Programs
from plnt.settings import PoolSettings
from plnt.steps import RUN_SMOKE_TEST, Queue
from tests.fakes.completion_server import Script, serve_completions


@workflow.defn(name="SmokeTestAlone")
class SmokeTestAlone:
    """Runs the one step, with its own number of attempts and a short pause between them."""

    @workflow.run
    async def run(self, request: RunSmokeTest) -> SmokeReport:
        attempts = RUN_SMOKE_TEST.retry.maximum_attempts
        report: SmokeReport = await workflow.execute_activity(
            RUN_SMOKE_TEST.name,
            request,
            task_queue=Queue.SMOKE,
            result_type=SmokeReport,
            start_to_close_timeout=RUN_SMOKE_TEST.start_to_close,
            heartbeat_timeout=RUN_SMOKE_TEST.heartbeat,
            retry_policy=RetryPolicy(initial_interval=timedelta(milliseconds=10), maximum_attempts=attempts),
        )
        return report


@workflow.defn(name="Listener")
class Listener:
    """Keeps what is reported to it."""

    def __init__(self) -> None:
        self._heard: list[Progress] = []

    @workflow.run
    async def run(self) -> None:
        await workflow.wait_condition(lambda: False)

    @workflow.signal
    def progress(self, word: Progress) -> None:
        self._heard.append(word)

    @workflow.query
    def heard(self) -> list[Progress]:
        return self._heard


@pytest.fixture(scope="module")
async def temporal(programs: Programs) -> AsyncIterator[Client]:
    async with await WorkflowEnvironment.start_local(
        dev_server_existing_path=str(programs.temporal), data_converter=pydantic_data_converter
    ) as server:
        yield server.client


@asynccontextmanager
async def _serving(client: Client) -> AsyncIterator[None]:
    async with (
        smoke.open_pool(PoolSettings()) as activities,
        Worker(client, task_queue=Queue.SMOKE, activities=list(activities), interceptors=[Boundary()]),
        Worker(
            client,
            task_queue=Queue.CONTROL,
            workflows=[SmokeTestAlone, Listener],
            workflow_runner=UnsandboxedWorkflowRunner(),
        ),
    ):
        yield


async def _test(
    client: Client, url: str, *, ttft_budget_ms: int | None = None, wait_seconds: float = 5
) -> tuple[SmokeReport | ApplicationError, list[Progress]]:
    """Run the step; gives its result or its failure, and what its reporter heard."""
    name = f"m{uuid4().hex[:8]}"
    request = RunSmokeTest(
        ref=Ref(namespace="default", name=name),
        release=f"{name}-0a1b2c3d",
        url=url,
        model="m",
        prompts=2,
        ttft_budget_ms=ttft_budget_ms,
        tpot_budget_ms=None,
        wait_seconds=wait_seconds,
    )
    listener = await client.start_workflow(
        Listener.run, id=names.reporter_id("default", name), task_queue=Queue.CONTROL
    )
    run: WorkflowHandle[SmokeTestAlone, SmokeReport] = await client.start_workflow(
        SmokeTestAlone.run, request, id=names.rollout_id("default", name), task_queue=Queue.CONTROL
    )
    result: SmokeReport | ApplicationError
    try:
        result = await run.result()
    except WorkflowFailureError as error:
        result = _cause_of(error)
    heard = await listener.query(Listener.heard)
    await listener.terminate()
    return result, heard


def _cause_of(error: WorkflowFailureError) -> ApplicationError:
    failed = error.cause
    assert isinstance(failed, ActivityError)
    assert isinstance(failed.cause, ApplicationError)
    return failed.cause


async def test_passed_test_gives_its_numbers_and_tells_how_far_it_is(temporal: Client) -> None:
    async with _serving(temporal), serve_completions(Script()) as server:
        result, heard = await _test(temporal, server.url, ttft_budget_ms=5000)
    assert isinstance(result, SmokeReport)
    assert result.prompts == 2
    assert {word.step for word in heard} == {"run-smoke-test"}
    assert any("TTFT p50" in word.message for word in heard)


async def test_failed_test_is_not_retried_and_reports_its_numbers(temporal: Client) -> None:
    async with _serving(temporal), serve_completions(Script(ttft=0.5)) as server:
        result, heard = await _test(temporal, server.url, ttft_budget_ms=20)
        asked = len(server.requests)
    assert isinstance(result, ApplicationError)
    assert result.type == "SmokeTestFailed"
    assert result.non_retryable
    assert "over spec.canary.smokeTest.ttftBudgetMs 20 ms" in result.message
    assert asked == 4, "two warm-up requests and two prompts, once"
    assert heard[-1].last_error.startswith("SmokeTestFailed: TTFT p50 ")


async def test_inconclusive_test_is_tried_three_times(temporal: Client) -> None:
    async with _serving(temporal), serve_completions(Script(models_after=10_000)) as server:
        result, heard = await _test(temporal, server.url, wait_seconds=0.1)
    assert isinstance(result, ApplicationError)
    assert result.type == "SmokeTestInconclusive"
    assert sum(word.last_error.startswith("SmokeTestInconclusive") for word in heard) == 3
