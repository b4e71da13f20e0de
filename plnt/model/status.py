"""Phases, conditions and what a run reports about itself."""

from datetime import datetime
from enum import StrEnum

from plnt.model.message import Message


class Phase(StrEnum):
    """Where a rollout stands."""

    PENDING = "Pending"
    VALIDATING = "Validating"
    PULLING_WEIGHTS = "PullingWeights"
    DEPLOYING = "Deploying"
    SMOKE_TESTING = "SmokeTesting"
    PROMOTING = "Promoting"
    READY = "Ready"
    ROLLED_BACK = "RolledBack"
    FAILED = "Failed"


TERMINAL_PHASES = frozenset({Phase.READY, Phase.ROLLED_BACK, Phase.FAILED})


class ConditionType(StrEnum):
    """Conditions in the status."""

    READY = "Ready"
    ACCEPTED = "Accepted"
    RUNTIME_DEPRECATED = "RuntimeDeprecated"
    """Only where the runtime's makers have given it up."""
    WEIGHTS_READY = "WeightsReady"
    WEIGHTS_VERIFIED = "WeightsVerified"
    GPUS_RESERVED = "GPUsReserved"
    DEPLOYED = "Deployed"
    SMOKE_PASSED = "SmokePassed"
    PROMOTED = "Promoted"
    AUTOSCALING_READY = "AutoscalingReady"
    RECONCILING = "Reconciling"
    STALLED = "Stalled"


class ConditionStatus(StrEnum):
    """Values of a condition's status."""

    TRUE = "True"
    FALSE = "False"
    UNKNOWN = "Unknown"


class Condition(Message):
    """One condition as a run states it; the reporter adds times and observedGeneration."""

    type: ConditionType
    status: ConditionStatus
    reason: str
    message: str = ""


class PhaseReport(Message):
    """A run's statement about itself: phase, conditions and what serves.

    Within a uid, reports are ordered by (generation, sent_at, seq). ``conditions`` is the run's whole set;
    a condition that it leaves out is removed, so nothing of an earlier generation stays. ``endpoint`` None
    leaves the field out: nothing serves.
    """

    uid: str
    generation: int
    run_id: str = ""
    sent_at: float = 0.0
    """Seconds since the epoch by the workflow's clock; 0 for the bridge's own Pending."""
    seq: int = 0
    phase: Phase
    endpoint: str | None = None
    endpoint_known: bool = True
    """False before anybody has looked what serves: the endpoint that was written last stays."""
    last_error: str = ""
    observed_options: str = ""
    """Options digest that the run works on."""
    conditions: list[Condition] = []

    @property
    def order(self) -> tuple[int, float, int]:
        """Key by which reports of one uid are ordered."""
        return (self.generation, self.sent_at, self.seq)


class Progress(Message):
    """An activity's word while it works; touches only one condition and lastError.

    ``step`` is the name of a step in the step table; dropped unless that step's phase is the phase that run
    ``run_id`` reported last.
    """

    run_id: str
    step: str
    message: str = ""
    last_error: str = ""
    """The latest failed attempt as ``Reason: message``; empty once an attempt got further."""


class StatusWrite(Message):
    """What the reporter asks the bridge's write activity to write; no report only asks which object lives."""

    namespace: str
    name: str
    report: PhaseReport | None = None


class StatusWritten(Message):
    """What the write met: the live object's uid, or none when the object is gone."""

    live_uid: str | None
    at: datetime | None = None
    """When something was written; none when the status said so already, or was for another uid."""
