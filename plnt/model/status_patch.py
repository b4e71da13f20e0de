"""From a report to the status fields that stand in the WorkflowRun."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from plnt.model.status import Condition, ConditionStatus, ConditionType, Phase, PhaseReport

Status = dict[str, Any]

OWN_FIELDS = (
    "phase",
    "endpoint",
    "workflowRunId",
    "lastError",
    "observedGeneration",
    "observedOptions",
    "conditions",
)
"""Every status field that the bridge writes; server-side apply removes those that it leaves out."""

MAX_TEXT_CHARS = 4096
"""Longest lastError and condition message, in characters: the bound in the CRD."""


def build_status(live: Mapping[str, Any], report: PhaseReport, now: datetime) -> Status:
    """Give the whole own field set of ``report`` for the object ``live``.

    ``lastTransitionTime`` moves only when a condition's status flips, so that a report that says nothing new
    gives what is there already.
    """
    before: Mapping[str, Any] = live.get("status") or {}
    endpoint = report.endpoint if report.endpoint_known else before.get("endpoint")
    times = {entry["type"]: entry for entry in before.get("conditions") or []}
    stated = _with_ready(report, live["metadata"]["generation"])
    wanted = {
        "phase": report.phase.value,
        "endpoint": endpoint,
        "workflowRunId": report.run_id,
        "lastError": report.last_error[:MAX_TEXT_CHARS],
        "observedGeneration": report.generation,
        "observedOptions": report.observed_options,
        "conditions": [_entry(condition, report.generation, times, now) for condition in stated],
    }
    return {key: value for key, value in wanted.items() if value not in (None, "")}


def is_written(live: Mapping[str, Any], status: Status) -> bool:
    """Tell whether ``live`` holds ``status`` already, whatever the order of its conditions."""
    before: Mapping[str, Any] = live.get("status") or {}
    return all(_comparable(before.get(key)) == _comparable(status.get(key)) for key in OWN_FIELDS)


def _comparable(value: object) -> object:
    return sorted(value, key=lambda entry: str(entry["type"])) if isinstance(value, list) else value


def _with_ready(report: PhaseReport, newest: int) -> list[Condition]:
    """Give the conditions with Ready first: True only while the newest generation stands at phase Ready."""
    rest = [condition for condition in report.conditions if condition.type is not ConditionType.READY]
    return [_ready(report, newest), *rest]


def _ready(report: PhaseReport, newest: int) -> Condition:
    stated = next((condition for condition in report.conditions if condition.type is ConditionType.READY), None)
    if report.phase is Phase.READY and report.generation < newest:
        return Condition(
            type=ConditionType.READY,
            status=ConditionStatus.FALSE,
            reason="NewerGeneration",
            message=f"generation {report.generation} is ready, generation {newest} was not looked at yet",
        )
    holds = report.phase is Phase.READY
    if stated is not None and (holds or stated.status is not ConditionStatus.TRUE):
        return stated
    status = ConditionStatus.TRUE if holds else ConditionStatus.FALSE
    return Condition(type=ConditionType.READY, status=status, reason=report.phase.value)


def _entry(condition: Condition, generation: int, before: Mapping[str, Any], now: datetime) -> Status:
    known = before.get(condition.type.value)
    since = known["lastTransitionTime"] if known is not None and known["status"] == condition.status.value else None
    return {
        "type": condition.type.value,
        "status": condition.status.value,
        "reason": condition.reason,
        "message": condition.message[:MAX_TEXT_CHARS],
        "observedGeneration": generation,
        "lastTransitionTime": since or now.strftime("%Y-%m-%dT%H:%M:%SZ"),
    }
