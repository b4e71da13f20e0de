"""Words to the WorkflowRun's status reporter: sent in order, without the run waiting for each."""

import asyncio
from collections import deque

from temporalio import workflow
from temporalio.exceptions import FailureError


class Outbox:
    """Signals to one workflow. One is under way at a time, so they arrive in the order of posting."""

    def __init__(self, workflow_id: str) -> None:
        self._workflow_id = workflow_id
        self._waiting: deque[tuple[str, object]] = deque()
        self._sender: asyncio.Task[None] | None = None

    def post(self, signal: str, word: object) -> None:
        """Send ``word`` after everything posted before it."""
        self._waiting.append((signal, word))
        if self._sender is None or self._sender.done():
            self._sender = asyncio.create_task(self._send())

    async def drain(self) -> None:
        """Wait until everything posted was delivered or found no receiver; closing before would lose words."""
        await workflow.wait_condition(lambda: self._sender is None or self._sender.done())

    async def _send(self) -> None:
        handle = workflow.get_external_workflow_handle(self._workflow_id)
        while self._waiting:
            signal, word = self._waiting.popleft()
            try:
                await handle.signal(signal, word)
            except FailureError as error:
                workflow.logger.info("reporter not reached", extra={"signal": signal, "error": str(error)})
