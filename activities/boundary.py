"""The one place where a failed activity becomes an ApplicationError, a log line and a word in the status."""

import asyncio
import logging
import time
from typing import Any

from temporalio import activity
from temporalio.exceptions import ApplicationError, ApplicationErrorCategory
from temporalio.service import RPCError
from temporalio.worker import ActivityInboundInterceptor, ExecuteActivityInput, Interceptor

from activities.progress import report_progress
from plnt.errors import PlntError, TemporalUnavailable

logger = logging.getLogger(__name__)

INTERNAL_ERROR = "InternalError"
"""Reason of a failure that is plnt's own bug; its text goes to the log, not to users."""


class Boundary(Interceptor):
    """Translates what leaves an activity."""

    def intercept_activity(self, next: ActivityInboundInterceptor) -> ActivityInboundInterceptor:  # noqa: A002
        """Put the translation around ``next``."""
        return _Translating(next)


class _Translating(ActivityInboundInterceptor):
    async def execute_activity(self, input: ExecuteActivityInput) -> Any:  # noqa: A002
        began = time.monotonic()
        try:
            result = await super().execute_activity(input)
            logger.info("step done", extra={**_facts(), "seconds": round(time.monotonic() - began, 3)})
            return result
        except (asyncio.CancelledError, ApplicationError):
            raise
        except RPCError as error:
            unavailable = TemporalUnavailable(f"Temporal did not answer: {error.status.name} {error}")
            logger.warning("step failed", extra=_facts() | {"reason": unavailable.reason, "error": str(unavailable)})
            raise _application_error(unavailable) from None
        except PlntError as error:
            logger.warning("step failed", extra=_facts() | {"reason": error.reason, "error": str(error)})
            await report_progress("", last_error=f"{error.reason}: {error}")
            # Without its causes: foreign texts may hold signed URLs, and the history is open to many.
            raise _application_error(error) from None
        except Exception as error:
            logger.exception("step met a bug", extra=_facts() | {"reason": INTERNAL_ERROR})
            text = f"{INTERNAL_ERROR}: {type(error).__name__}; see the worker's log"
            await report_progress("", last_error=text)
            raise ApplicationError(f"{type(error).__name__}; see the worker's log", type=INTERNAL_ERROR) from None


def _application_error(error: PlntError) -> ApplicationError:
    return ApplicationError(
        str(error),
        type=error.reason,
        non_retryable=not error.retryable,
        next_retry_delay=error.after,
        category=ApplicationErrorCategory.BENIGN,
    )


def _facts() -> dict[str, object]:
    info = activity.info()
    return {
        "workflow_id": info.workflow_id,
        "run_id": info.workflow_run_id,
        "step": info.activity_type,
        "attempt": info.attempt,
    }
