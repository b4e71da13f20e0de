"""A rollout that notes what a test tells it in its memo and ends as told."""

from typing import Literal

from temporalio import workflow
from temporalio.exceptions import ApplicationError

from plnt.model.message import Message
from plnt.model.status import PhaseReport


class Ending(Message):
    """What to note, and how to end then; ``open`` waits for a cancel."""

    identity: str
    report: PhaseReport | None = None
    how: Literal["completed", "failed", "open"] = "completed"


@workflow.defn(name="Rollout")
class ScriptedRollout:
    """Counts its pokes until it is told to end."""

    def __init__(self) -> None:
        self._pokes = 0
        self._ending: Ending | None = None

    @workflow.signal
    def desired_changed(self) -> None:
        self._pokes += 1

    @workflow.signal
    def end(self, ending: Ending) -> None:
        self._ending = ending

    @workflow.query
    def pokes(self) -> int:
        return self._pokes

    @workflow.run
    async def run(self) -> None:
        await workflow.wait_condition(lambda: self._ending is not None)
        assert self._ending is not None
        workflow.upsert_memo({"identity": self._ending.identity, "report": self._ending.report})
        if self._ending.how == "open":
            await workflow.wait_condition(lambda: False)
        if self._ending.how == "failed":
            raise ApplicationError("undone", type="SmokeTestFailed", non_retryable=True)
