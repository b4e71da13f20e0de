"""A workflow that does what a rollout does on the server's side, and nothing else: the peer of the benchmark."""

import asyncio
from datetime import timedelta
from typing import Any

from temporalio import workflow

from plnt.model.message import Message
from plnt.model.status import PhaseReport
from plnt.steps import STEPS

BY_NAME = {step.name: step for step in STEPS}


class Call(Message):
    """One activity of a recorded rollout and its argument; ``beside``: it runs at the same time as the next one."""

    step: str
    arg: dict[str, Any]
    beside: bool = False


class Score(Message):
    """The calls of a rollout in order, and a report with how often it is sent."""

    receiver: str
    calls: list[Call]
    report: PhaseReport
    reports: int


@workflow.defn(name="Bare")
class Bare:
    def __init__(self) -> None:
        self._granted = False

    @workflow.signal
    def granted(self, _: str = "") -> None:
        self._granted = True

    @workflow.run
    async def run(self, score: Score) -> None:
        receiver = workflow.get_external_workflow_handle(score.receiver)
        spread = max(len(score.calls) // score.reports, 1)
        sent = 0
        tasks: list[asyncio.Task[Any]] = []
        for number, call in enumerate(score.calls):
            tasks.append(asyncio.create_task(self._take(call)))
            if sent < score.reports and number % spread == 0:
                sent += 1
                tasks.append(asyncio.create_task(receiver.signal("report", score.report)))
            if not call.beside:
                await asyncio.gather(*tasks)
                tasks.clear()
            if call.step == "join-line":
                await workflow.wait_condition(lambda: self._granted)
        for _ in range(score.reports - sent):
            await receiver.signal("report", score.report)

    async def _take(self, call: Call) -> None:
        step, info = BY_NAME[call.step], workflow.info()
        own = {"workflow_id": info.workflow_id, "run_id": info.run_id}
        arg = step.takes.model_validate({**call.arg, **{key: own[key] for key in own if key in call.arg}})
        await workflow.execute_activity(
            step.name,
            arg,
            result_type=step.gives,
            task_queue=step.queue,
            start_to_close_timeout=timedelta(minutes=1),
        )
