"""Tells a rollout as lines: each phase, the time in it, and what its step says meanwhile."""

from collections.abc import Mapping
from typing import Any

from plnt.model.status import TERMINAL_PHASES, ConditionType, Phase

Object = Mapping[str, Any]

TOLD = {
    Phase.VALIDATING: (ConditionType.ACCEPTED,),
    Phase.PULLING_WEIGHTS: (ConditionType.WEIGHTS_READY,),
    Phase.DEPLOYING: (ConditionType.GPUS_RESERVED, ConditionType.DEPLOYED),
    Phase.SMOKE_TESTING: (ConditionType.SMOKE_PASSED,),
    Phase.PROMOTING: (ConditionType.PROMOTED,),
}
"""Conditions that say what a phase is doing: bytes and rate, place in line, pods, TTFT and TPOT."""
WORKS_ON = {
    Phase.PENDING: "bridge",
    Phase.VALIDATING: "control",
    Phase.PULLING_WEIGHTS: "weights",
    Phase.DEPLOYING: "deploy",
    Phase.SMOKE_TESTING: "smoke",
    Phase.PROMOTING: "promote",
}
"""The component to look at when a phase does not end."""


class Story:
    """What was seen of one WorkflowRun so far; times are seconds of any steady clock."""

    def __init__(self, now: float) -> None:
        """Begin at ``now``."""
        self._began = now
        self._entered = now
        self._object: Object = {}
        self.phase: Phase | None = None
        self.phases: list[Phase] = []

    @property
    def status(self) -> Mapping[str, Any]:
        """The status as last seen."""
        return self._object.get("status") or {}

    @property
    def is_over(self) -> bool:
        """Whether the rollout has ended."""
        return self.phase in TERMINAL_PHASES

    @property
    def suspect(self) -> str:
        """The component that works on the last phase that was not an end."""
        working = [phase for phase in self.phases if phase in WORKS_ON]
        return WORKS_ON[working[-1]] if working else "bridge"

    def observe(self, seen: Object, now: float) -> list[str]:
        """Take the object as it is now; gives the lines of the phase that ended, if one did."""
        before = self.phase
        self._object = seen
        phase = Phase(self.status["phase"]) if "phase" in self.status else None
        if phase is None or phase is before:
            return []
        lines = [self._close(before, now)] if before is not None else []
        self.phase, self._entered = phase, now
        self.phases.append(phase)
        if self.is_over:
            lines.append(f"{phase:<15} {now - self._began:6.1f} s in all")
        return lines

    def render_now(self, now: float) -> str:
        """Give the present phase, the time in it, and what it does."""
        phase = self.phase or "(not seen yet)"
        return f"{phase:<15} {now - self._entered:6.1f} s  {self._say(self.phase)}".rstrip()

    def _close(self, phase: Phase, now: float) -> str:
        return f"{phase:<15} {now - self._entered:6.1f} s  {self._say(phase)}".rstrip()

    def _say(self, phase: Phase | None) -> str:
        if phase is None:
            return ""
        messages = {one["type"]: one.get("message", "") for one in self.status.get("conditions", [])}
        return "; ".join(filter(None, (messages.get(kind, "") for kind in TOLD.get(phase, ()))))
