"""Writes a WorkflowRun's status by server-side apply, guarded by uid and resourceVersion."""

import logging
import secrets
from datetime import UTC, datetime
from typing import NamedTuple

from plnt.clients.kube import EVENTS, WORKFLOW_RUNS, Kube, Object
from plnt.errors import AccessDenied, ApiUnavailable, Conflict, NotFound, PlntError
from plnt.model import names
from plnt.model.status import ConditionType, Phase, PhaseReport, StatusWrite, StatusWritten
from plnt.model.status_patch import Status, build_status, is_written
from plnt.steps import WRITE_STATUS, implements

logger = logging.getLogger(__name__)

MAX_READS = 5
"""Reads of one attempt before a conflict is left to the step's own retries."""
MAX_NOTE_BYTES = 1000
"""Longest note of an event: the API server refuses more than 1 kB."""


class News(NamedTuple):
    """What an event tells."""

    reason: str
    note: str
    is_warning: bool


class StatusActivities:
    """The only writer of status."""

    def __init__(self, kube: Kube, instance: str) -> None:
        """Write through ``kube``; ``instance`` names this process in events."""
        self._kube = kube
        self._instance = instance

    @implements(WRITE_STATUS)
    async def write_status(self, write: StatusWrite) -> StatusWritten:
        """Write the report, unless the live object is another one or says it already.

        Raises:
            ApiUnavailable: also for a missing right, which people grant later: no report is lost to it.
            Conflict: the object changed between each read and write.
            Rejected: the API server knows no such field or value; its CRD is older than this plnt.
        """
        try:
            for _ in range(MAX_READS):
                written = await self._try(write)
                if written is not None:
                    return written
        except AccessDenied as error:
            raise ApiUnavailable(f"the bridge may not write status: {error}") from error
        raise Conflict(
            f"status of {write.namespace}/{write.name}: the object changed before each of {MAX_READS} writes"
        )

    async def _try(self, write: StatusWrite) -> StatusWritten | None:
        """Read, compare, write once; none when the object changed in between."""
        live = await self._kube.find(WORKFLOW_RUNS, write.namespace, write.name)
        if live is None:
            return StatusWritten(live_uid=None)
        uid, report = live["metadata"]["uid"], write.report
        if report is None or report.uid != uid:
            return StatusWritten(live_uid=uid)
        now = datetime.now(UTC)
        status = build_status(live, report, now)
        if is_written(live, status):
            return StatusWritten(live_uid=uid)
        try:
            await self._kube.apply(
                WORKFLOW_RUNS, _patch(live, status), manager=names.STATUS_FIELD_MANAGER, sub="status"
            )
        except (Conflict, NotFound):
            return None
        for news in list_news(live.get("status") or {}, report):
            logger.info("status written", extra=_facts(write, report, news))
            await self._record_event(live, news, now)
        return StatusWritten(live_uid=uid, at=now)

    async def _record_event(self, live: Object, news: News, now: datetime) -> None:
        """Record news for ``kubectl describe``; events are a story, never the truth, so a failure passes."""
        event = _event(live, news, now, self._instance)
        try:
            await self._kube.create(EVENTS, live["metadata"]["namespace"], event)
        except PlntError as error:
            logger.info("event not recorded", extra={"run": live["metadata"]["uid"], "error": str(error)})


def _facts(write: StatusWrite, report: PhaseReport, news: News) -> dict[str, object]:
    run = f"{write.namespace}/{write.name}"
    return {"run": run, "generation": report.generation, "reason": news.reason, "text": news.note}


def _patch(live: Object, status: Status) -> Object:
    meta = live["metadata"]
    return {
        "apiVersion": names.API_VERSION,
        "kind": names.KIND,
        "metadata": {"namespace": meta["namespace"], "name": meta["name"], "resourceVersion": meta["resourceVersion"]},
        "status": status,
    }


def list_news(before: Status, report: PhaseReport) -> list[News]:
    """Give what a report says that the status before it did not: another phase, a runtime that is given up."""
    news = []
    if report.phase != before.get("phase"):
        bad = report.phase in {Phase.FAILED, Phase.ROLLED_BACK}
        usual = f"generation {report.generation}: {report.phase.value}"
        news.append(News(report.phase.value, report.last_error if bad and report.last_error else usual, bad))
    known = {condition["type"] for condition in before.get("conditions") or []}
    news += [
        News(condition.type.value, condition.message, is_warning=True)
        for condition in report.conditions
        if condition.type is ConditionType.RUNTIME_DEPRECATED and condition.type not in known
    ]
    return news


def _event(live: Object, news: News, now: datetime, instance: str) -> Object:
    meta = live["metadata"]
    return {
        "apiVersion": EVENTS.api,
        "kind": "Event",
        "metadata": {
            "namespace": meta["namespace"],
            "name": f"{meta['name'][:200].rstrip('.-')}.{secrets.token_hex(8)}",
        },
        "regarding": {
            "apiVersion": names.API_VERSION,
            "kind": names.KIND,
            "namespace": meta["namespace"],
            "name": meta["name"],
            "uid": meta["uid"],
        },
        "type": "Warning" if news.is_warning else "Normal",
        "reason": news.reason,
        "action": "Rollout",
        "note": news.note.encode()[:MAX_NOTE_BYTES].decode(errors="ignore"),
        "reportingController": f"{names.GROUP}/bridge",
        "reportingInstance": instance[:128],
        "eventTime": now.strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
    }
