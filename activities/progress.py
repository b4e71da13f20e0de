"""Words from a working activity: to the CR through the status reporter, to Temporal as heartbeats."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import timedelta

from temporalio import activity
from temporalio.service import RPCError

from plnt.model import names
from plnt.model.message import Message
from plnt.model.status import Progress

logger = logging.getLogger(__name__)

_RPC_TIMEOUT = timedelta(seconds=2)


async def report_progress(message: str, *, last_error: str = "") -> None:
    """Tell the WorkflowRun's status reporter; a word that cannot be delivered is dropped, never retried."""
    info = activity.info()
    if not (info.workflow_id or "").startswith("rollout."):
        return
    namespace, name = names.parse_workflow_id(info.workflow_id or "")
    word = Progress(run_id=info.workflow_run_id or "", step=info.activity_type, message=message, last_error=last_error)
    try:
        handle = activity.client().get_workflow_handle(names.reporter_id(namespace, name))
        await handle.signal("progress", word, rpc_timeout=_RPC_TIMEOUT)
    except RPCError as error:
        logger.debug("progress not delivered", extra={"workflow_id": info.workflow_id, "error": str(error)})


@asynccontextmanager
async def heartbeat(details: Callable[[], Message | None] = lambda: None) -> AsyncIterator[None]:
    """Heartbeat from a task of its own while the context is open, with the details of the moment.

    The interval is a fifth of the heartbeat timeout, so that one slow round does not end the attempt.
    """
    limit = activity.info().heartbeat_timeout or timedelta(seconds=30)
    task = asyncio.create_task(_beat(limit.total_seconds() / 5, details))
    try:
        yield
    finally:
        task.cancel()


async def _beat(seconds: float, details: Callable[[], Message | None]) -> None:
    """Beat with the newest details that could be read.

    A fault in them must not stop the beats: the server would end attempt after attempt of a step whose work goes
    well, and hours of it would be lost without a word of the cause.
    """
    word: Message | None = None
    told = False
    while True:
        try:
            word = details()
        except Exception:
            if not told:
                logger.exception("heartbeats go on without new details: they cannot be read", extra=_facts())
            told = True
        activity.heartbeat(*([] if word is None else [word]))
        await asyncio.sleep(seconds)


def _facts() -> dict[str, object]:
    info = activity.info()
    return {"workflow_id": info.workflow_id, "run_id": info.workflow_run_id, "step": info.activity_type}
