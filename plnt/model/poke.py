"""Whether a WorkflowRun that the bridge sees needs its workflow; the bridge's decisions."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Any

from plnt.model.desired import identity_of
from plnt.model.message import Message
from plnt.model.options import options_digest
from plnt.model.status import TERMINAL_PHASES, Condition, ConditionStatus, ConditionType, Phase, PhaseReport

Key = tuple[str, str]
"""Namespace and name."""


class Seen(Message):
    """What the bridge keeps of a WorkflowRun."""

    namespace: str
    name: str
    uid: str
    resource_version: str
    generation: int
    options_digest: str
    deleting: bool
    phase: str = ""
    observed_generation: int = 0
    observed_options: str = ""
    model: str = ""
    runtime: str = ""
    gpu: int = 0
    gpu_class: str = ""

    @property
    def key(self) -> Key:
        """Namespace and name."""
        return (self.namespace, self.name)

    @property
    def identity(self) -> str:
        """What its workflow is poked once for."""
        return identity_of(self.uid, self.generation, self.options_digest, self.deleting)

    @property
    def is_settled(self) -> bool:
        """Whether its status says that nothing is left to do."""
        return (
            self.phase in TERMINAL_PHASES
            and self.observed_generation == self.generation
            and self.observed_options == self.options_digest
        )


def read_seen(manifest: Mapping[str, Any]) -> Seen:
    """Read a WorkflowRun as the API server sends it.

    Raises:
        KeyError, TypeError, ValueError: it has no metadata that one can use. A spec of any shape is read.
    """
    meta = manifest["metadata"]
    spec, status = _mapping(manifest, "spec"), _mapping(manifest, "status")
    resources = _mapping(spec, "resources")
    gpu = resources.get("gpu")
    return Seen(
        namespace=meta["namespace"],
        name=meta["name"],
        uid=meta["uid"],
        resource_version=meta["resourceVersion"],
        generation=meta["generation"],
        options_digest=options_digest(meta.get("annotations") or {}, meta.get("labels") or {}),
        deleting="deletionTimestamp" in meta,
        phase=str(status.get("phase", "")),
        observed_generation=int(status.get("observedGeneration", 0)),
        observed_options=str(status.get("observedOptions", "")),
        model=str(_mapping(spec, "model").get("name", "")),
        runtime=str(spec.get("runtime", "")),
        gpu=gpu if isinstance(gpu, int) else 0,
        gpu_class=str(resources.get("gpuClass", "")),
    )


def _mapping(of: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    value = of.get(key)
    return value if isinstance(value, Mapping) else {}


class RunState(StrEnum):
    """What became of the newest run of a workflow ID."""

    NONE = "none"
    OPEN = "open"
    CLOSED = "closed"
    """Completed, Failed or Canceled: it ended by its own word."""
    LOST = "lost"
    """Terminated or timed out: it could undo and report nothing."""


class LatestRun(Message):
    """The newest run of a WorkflowRun's workflow, and what it noted in its memo."""

    state: RunState
    identity: str = ""
    report: PhaseReport | None = None


class Action(StrEnum):
    """What the bridge does about an object."""

    IGNORE = "ignore"
    LOOK_UP = "look-up"
    """Ask Temporal for the newest run, then decide again."""
    POKE = "poke"
    SEND = "send"
    """Send the memo's report to the status reporter."""


class Decision(Message):
    """What to do, and why."""

    action: Action
    reason: str


def decide(seen: Seen, *, poked: bool, listed: bool, latest: LatestRun | None = None) -> Decision:
    """Decide about one object.

    ``poked``: this process did so for this very identity. ``listed``: the object comes from a full list, at
    start or at a resync, where lost work is looked for; an event of a watch alone is cheaper.
    """
    if seen.is_settled:
        return Decision(action=Action.IGNORE, reason="its status is settled")
    if not listed:
        if poked:
            return Decision(action=Action.IGNORE, reason="poked for this identity")
        return Decision(action=Action.POKE, reason="new identity")
    if latest is None:
        return Decision(action=Action.LOOK_UP, reason="its status is not settled")
    return _decide_by_run(seen, latest, poked=poked)


def _decide_by_run(seen: Seen, latest: LatestRun, *, poked: bool) -> Decision:
    match latest.state:
        case RunState.OPEN if poked:
            return Decision(action=Action.IGNORE, reason="its run is open and was poked")
        case RunState.OPEN:
            return Decision(action=Action.POKE, reason="its open run may not know this identity")
        case RunState.CLOSED if latest.identity == seen.identity:
            if latest.report is None:
                return Decision(action=Action.IGNORE, reason="a run closed for this identity without a report")
            return Decision(action=Action.SEND, reason="a run closed for this identity")
        case RunState.CLOSED:
            return Decision(action=Action.POKE, reason="the newest run closed for another identity")
        case _:
            return Decision(action=Action.POKE, reason=f"newest run: {latest.state}")


def pending_report(seen: Seen) -> PhaseReport | None:
    """Give the bridge's own report for a new uid or generation; none for what was reported on before."""
    if seen.phase and seen.observed_generation == seen.generation:
        return None
    reason = "Deleting" if seen.deleting else "Pending"
    waiting = "waiting for a worker to take it down" if seen.deleting else "accepted, waiting for a worker"
    return PhaseReport(
        uid=seen.uid,
        generation=seen.generation,
        phase=Phase.PENDING,
        endpoint_known=False,
        observed_options=seen.options_digest,
        conditions=[
            Condition(type=ConditionType.READY, status=ConditionStatus.FALSE, reason=reason, message=waiting),
            Condition(type=ConditionType.RECONCILING, status=ConditionStatus.TRUE, reason=reason, message=waiting),
        ],
    )
