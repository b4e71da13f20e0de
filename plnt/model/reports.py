"""From what a run knows to what it reports: phase, conditions with their numbers, the text in the Web UI."""

from datetime import datetime

from plnt.model import autoscaler
from plnt.model.desired import Desired
from plnt.model.message import Message
from plnt.model.messages import AutoscalingState, PlanRef, SmokeReport, Tree
from plnt.model.status import TERMINAL_PHASES, Condition, ConditionStatus, ConditionType, Phase, PhaseReport
from plnt.model.workflow_run import Runtime, Spec

PENDING = "Pending"
UNCHANGED = "Unchanged"
CANCELLED = "Cancelled"
DELETING = "Deleting"
UNDOING = "Undoing"
PAUSED = "Paused"
AWAITING_APPROVAL = "AwaitingApproval"

_TRUE, _FALSE, _UNKNOWN = ConditionStatus.TRUE, ConditionStatus.FALSE, ConditionStatus.UNKNOWN
_MEBI = 2**20
_DEPRECATED = {
    Runtime.TGI: (
        "Text Generation Inference was archived by its makers in 2026 and gets no fixes: it still works, but plan to"
        " set spec.runtime to vllm or sglang"
    )
}


class Failure(Message):
    """Why something failed: a stable reason and one line."""

    reason: str
    message: str

    def __str__(self) -> str:
        """Give the text of ``status.lastError``."""
        return f"{self.reason}: {self.message}"


class Facts(Message):
    """What a run knows so far. Its conditions follow from this alone."""

    phase: Phase = Phase.VALIDATING
    endpoint: str | None = None
    endpoint_known: bool = False
    revision: str = ""
    accepted: bool = False
    warnings: list[str] = []
    """What may go wrong although the spec is accepted, one line each."""
    plan: PlanRef | None = None
    tree: Tree | None = None
    gpus: int = 0
    """GPUs asked for, over all pods at full size."""
    reserved: bool = False
    release: str = ""
    pods: int = 0
    """Ready pods of the release under test."""
    smoke: SmokeReport | None = None
    weights: dict[str, int] = {}
    autoscaling: AutoscalingState | None = None
    """What holds the size of this generation; none = it does not serve yet."""
    promoted: bool = False
    unchanged: bool = False
    """The serving revision stays: nothing is pulled, deployed or tested."""
    deleting: bool = False
    paused: bool = False
    """Held before the next phase."""
    approval: str = ""
    """What a person has to do before the promotion; empty = nothing."""
    undoing: bool = False
    undone: bool = False
    cancelled: bool = False
    stalled: bool = False
    failure: Failure | None = None


def build_report(desired: Desired, facts: Facts, run_id: str, sent_at: float, seq: int) -> PhaseReport:
    """Give the report with the whole set of conditions."""
    return PhaseReport(
        uid=desired.uid,
        generation=desired.generation,
        run_id=run_id,
        sent_at=sent_at,
        seq=seq,
        phase=facts.phase,
        endpoint=facts.endpoint,
        endpoint_known=facts.endpoint_known,
        last_error=str(facts.failure) if facts.failure else "",
        observed_options=desired.options_digest,
        conditions=build_conditions(desired.spec, facts),
    )


def build_conditions(spec: Spec, facts: Facts) -> list[Condition]:
    """Give every condition, in the order of `ConditionType`."""
    found = [
        _ready(facts),
        _accepted(facts),
        *_deprecated(spec),
        *(_unchanged(facts) if facts.unchanged else _stages(spec, facts)),
        _autoscaling(spec, facts),
        _reconciling(facts),
        _stalled(facts),
    ]
    blamed = blame(facts)
    return [_blamed(one, facts) if one.type is blamed else one for one in found]


def blame(facts: Facts) -> ConditionType | None:
    """Give the condition that the failure belongs to."""
    if facts.failure is None or facts.stalled:
        return None
    if facts.phase is Phase.READY:
        return None
    order = (
        (facts.accepted, ConditionType.ACCEPTED),
        (facts.tree is not None, ConditionType.WEIGHTS_READY),
        (facts.reserved, ConditionType.GPUS_RESERVED),
        (facts.pods > 0, ConditionType.DEPLOYED),
        (facts.smoke is not None, ConditionType.SMOKE_PASSED),
    )
    return next((kind for passed, kind in order if not passed), ConditionType.PROMOTED)


def _blamed(one: Condition, facts: Facts) -> Condition:
    failure = facts.failure
    return one if failure is None else _false(one.type, failure.reason, failure.message)


def _condition(kind: ConditionType, status: ConditionStatus, reason: str, message: str) -> Condition:
    return Condition(type=kind, status=status, reason=reason, message=message)


def _true(kind: ConditionType, reason: str, message: str) -> Condition:
    return _condition(kind, _TRUE, reason, message)


def _false(kind: ConditionType, reason: str, message: str = "") -> Condition:
    return _condition(kind, _FALSE, reason, message)


def _ready(facts: Facts) -> Condition:
    kind = ConditionType.READY
    if facts.phase is Phase.READY:
        return _true(kind, "Serving", f"revision {facts.revision} serves at {facts.endpoint}")
    if facts.deleting:
        return _false(kind, DELETING, "everything of this WorkflowRun is taken down")
    if facts.failure:
        return _false(kind, facts.failure.reason, facts.failure.message)
    if facts.cancelled:
        return _false(kind, CANCELLED, "the run was cancelled" + (" and undone" if facts.undone else ""))
    return _false(kind, facts.phase.value, "the rollout of this generation is under way")


def _accepted(facts: Facts) -> Condition:
    if facts.accepted:
        if facts.warnings:
            return _true(ConditionType.ACCEPTED, "ValidWithWarnings", "; ".join(facts.warnings))
        return _true(ConditionType.ACCEPTED, "Valid", "spec and annotations can be honoured")
    return _condition(ConditionType.ACCEPTED, _UNKNOWN, "Validating", "spec, source and GPU class are being checked")


def _deprecated(spec: Spec) -> list[Condition]:
    """Give the condition of a runtime that its makers gave up; it still works, so nothing else changes."""
    said = _DEPRECATED.get(spec.runtime)
    return [_true(ConditionType.RUNTIME_DEPRECATED, "ArchivedUpstream", said)] if said else []


def _unchanged(facts: Facts) -> list[Condition]:
    kinds = (
        ConditionType.WEIGHTS_READY,
        ConditionType.WEIGHTS_VERIFIED,
        ConditionType.GPUS_RESERVED,
        ConditionType.DEPLOYED,
        ConditionType.SMOKE_PASSED,
        ConditionType.PROMOTED,
    )
    message = f"revision {facts.revision} serves already; the change needs no new pods"
    return [_true(kind, UNCHANGED, message) for kind in kinds]


def _stages(spec: Spec, facts: Facts) -> list[Condition]:
    return [*_weights(facts), _gpus(facts), _deployed(facts), _smoke(spec, facts), _promoted(facts)]


def _weights(facts: Facts) -> list[Condition]:
    ready, verified = ConditionType.WEIGHTS_READY, ConditionType.WEIGHTS_VERIFIED
    if facts.tree:
        size = f"{facts.tree.bytes} bytes ({facts.tree.bytes / _MEBI:.0f} MiB), tree {facts.tree.digest[:12]}"
        return [_true(ready, "Pulled", size), _true(verified, "Verified", f"proof: {facts.tree.proof}")]
    if facts.plan:
        size = f"{facts.plan.files} files, {facts.plan.bytes} bytes to have in the cache"
        return [_false(ready, "Pulling", size), _false(verified, PENDING)]
    return [_false(ready, PENDING), _false(verified, PENDING)]


def _gpus(facts: Facts) -> Condition:
    kind = ConditionType.GPUS_RESERVED
    if facts.undone and facts.reserved:
        return _false(kind, "Released", f"the lease of {facts.gpus} GPUs was given back")
    if facts.phase is Phase.READY:
        return _true(kind, "Bound", "the pods hold their GPUs")
    if facts.reserved:
        return _true(kind, "Granted", f"{facts.gpus} GPUs")
    return _false(kind, "InLine", f"needs {facts.gpus}") if facts.gpus else _false(kind, PENDING)


def _deployed(facts: Facts) -> Condition:
    kind = ConditionType.DEPLOYED
    if facts.undone and facts.release:
        return _false(kind, "RolledBack", f"release {facts.release} was uninstalled")
    if facts.pods:
        return _true(kind, "PodsReady", f"{facts.pods} pods of release {facts.release} are ready")
    return _false(kind, "Deploying", f"release {facts.release}") if facts.release else _false(kind, PENDING)


def _smoke(spec: Spec, facts: Facts) -> Condition:
    kind = ConditionType.SMOKE_PASSED
    return _true(kind, "Passed", describe_smoke(spec, facts.smoke)) if facts.smoke else _false(kind, PENDING)


def describe_smoke(spec: Spec, smoke: SmokeReport) -> str:
    """Give the smoke test's numbers beside their budgets."""
    budgets = spec.canary.smoke_test
    parts = [f"{smoke.prompts} prompts", _number("TTFT", smoke.ttft_p50_ms, budgets.ttft_budget_ms)]
    if smoke.tpot_p50_ms is not None:
        parts.append(_number("TPOT", smoke.tpot_p50_ms, budgets.tpot_budget_ms))
    return ", ".join(parts)


def _number(name: str, p50: float, budget: int | None) -> str:
    return f"{name} p50 {p50:.1f} ms" + (f" (budget {budget} ms)" if budget else "")


def _promoted(facts: Facts) -> Condition:
    kind = ConditionType.PROMOTED
    weights = ", ".join(f"{revision} {weight} %" for revision, weight in sorted(facts.weights.items()))
    if facts.promoted:
        return _true(kind, "Promoted", f"weights: {weights}")
    if facts.undone:
        return _false(kind, "RolledBack", "the canary has no traffic")
    if facts.approval:
        return _false(kind, AWAITING_APPROVAL, facts.approval)
    return _false(kind, "Baking" if weights else PENDING, f"weights: {weights}" if weights else "")


def _autoscaling(spec: Spec, facts: Facts) -> Condition:
    """Give what sizes the model; before it serves, only what no look at the cluster can change."""
    kind, found = ConditionType.AUTOSCALING_READY, facts.autoscaling
    if found is not None:
        return _condition(kind, _TRUE if found.ready else _FALSE, found.reason, found.message)
    if not autoscaler.is_wanted(spec):
        plan = autoscaler.plan_fixed(spec)
        return _false(kind, plan.reason, plan.message)
    return _false(kind, PENDING, "the size follows the load once this generation serves")


def _reconciling(facts: Facts) -> Condition:
    kind = ConditionType.RECONCILING
    if facts.phase in TERMINAL_PHASES:
        return _false(kind, "Settled", f"phase {facts.phase.value} is final for this generation")
    if facts.undoing:
        return _true(kind, UNDOING, "what this run did is being undone")
    if facts.deleting:
        return _true(kind, DELETING, "everything of this WorkflowRun is taken down")
    if facts.paused:
        return _true(kind, PAUSED, "held before the next phase: remove annotation plnt.work/pause to go on")
    return _true(kind, facts.phase.value, "")


def _stalled(facts: Facts) -> Condition:
    ended_badly = facts.phase in TERMINAL_PHASES and facts.phase is not Phase.READY
    if facts.failure and (facts.stalled or ended_badly):
        return _true(ConditionType.STALLED, facts.failure.reason, facts.failure.message)
    return _false(ConditionType.STALLED, "Progressing" if facts.phase not in TERMINAL_PHASES else "Settled")


def describe_run(desired: Desired, facts: Facts, now: datetime) -> str:
    """Give the current details for the Web UI, in markdown."""
    lines = [f"**{facts.phase.value}** since {now:%Y-%m-%d %H:%M:%S} UTC", f"generation {desired.generation}"]
    lines += _describe_stand(facts)
    if facts.failure:
        lines.append(f"`{facts.failure.reason}` {facts.failure.message}")
    if facts.revision:
        lines.append(f"revision `{facts.revision}`")
    if facts.smoke:
        lines.append(describe_smoke(desired.spec, facts.smoke))
    if facts.weights:
        lines.append("weights: " + ", ".join(f"`{name}` {weight} %" for name, weight in sorted(facts.weights.items())))
    if facts.endpoint:
        lines.append(f"endpoint {facts.endpoint}")
    return "\n\n".join(lines)


def _describe_stand(facts: Facts) -> list[str]:
    if facts.undoing:
        return ["undoing what this run did"]
    if facts.paused:
        return ["paused by annotation plnt.work/pause"]
    return [f"waits for an approval {facts.approval}"] if facts.approval else []
