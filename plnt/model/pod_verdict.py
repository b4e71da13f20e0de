"""The verdict on a release's pods: done, still to wait for, or failed with the pod's own reason.

The limits are those of other deployers (Tekton, Flyte): a reason that cannot pass by itself fails at once or
after a moment, one that a registry's rate limit or a scheduler may lift gets minutes.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta

from plnt.model.pod_state import Condition, Container, Deployment, Pod, ReleasePods, ReplicaSet

BROKEN_CONTAINER = timedelta(seconds=30)
"""Patience with a container that cannot be made, such as one whose Secret is missing."""
REFUSED_IMAGE = timedelta(seconds=15)
"""Patience with an image that the registry says is not there: two tries."""
PULL_TROUBLE = timedelta(minutes=4)
"""Patience with any other pull error, such as a rate limit."""
UNSCHEDULABLE = timedelta(minutes=2)
PREEMPTING = timedelta(minutes=15)
"""Patience with a pod that waits for pods being evicted for it."""
REFUSED_PODS = timedelta(seconds=30)
"""Patience with a quota or an admission that refuses the pods."""
PROGRESS_SLACK = timedelta(seconds=300)
"""What a start may take over its budget, as in the chart's progressDeadlineSeconds."""
MAX_RESTARTS = 3
MAX_LOST_PODS = 3
"""Pods that a node refused or evicted before the release is called failed."""

_BROKEN = frozenset(
    {
        "InvalidImageName",
        "ErrImageNeverPull",
        "CreateContainerConfigError",
        "CreateContainerError",
        "RunContainerError",
    }
)
_PULL = frozenset({"ErrImagePull", "ImagePullBackOff"})
_REFUSED_IMAGE = re.compile(r"not found|manifest unknown|unauthorized|denied|does not exist", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Done:
    """``pods`` are ready and nothing old is left."""

    pods: int


@dataclass(frozen=True, slots=True)
class Waiting:
    """Still to wait, for what ``message`` says."""

    message: str


@dataclass(frozen=True, slots=True)
class Failed:
    """Cannot get ready.

    ``pod`` and ``container``, when set, have a log worth quoting; of the run before when ``previous``.
    """

    message: str
    pod: str = ""
    container: str = ""
    previous: bool = False


Verdict = Done | Waiting | Failed


@dataclass(frozen=True, slots=True)
class Patience:
    """The times of one wait: when it began, what time it is, and the longest start of one pod."""

    since: datetime
    now: datetime
    budget: timedelta


def judge_release(release: ReleasePods, replicas: int, patience: Patience) -> Verdict:
    """Judge whether ``replicas`` pods of the newest ReplicaSet are ready.

    Pods of older ReplicaSets hide neither a failure nor a success.
    """
    now = patience.now
    deployment = release.deployment
    if deployment is None:
        return Failed("its Deployment is gone")
    newest = release.newest_set
    if deployment.status.observed_generation < deployment.metadata.generation or (newest is None and replicas > 0):
        return _find_refusal(deployment.status.conditions, now) or Waiting("the Deployment to be taken up")
    current = [pod for pod in release.pods if newest is not None and pod.metadata.is_owned_by(newest.metadata.uid)]
    old = [pod for pod in release.pods if pod not in current and pod.metadata.owner_references]
    failed = next(_find_failures(deployment, newest, current, patience), None)
    if failed is not None:
        return failed
    ready = sum(pod.is_ready for pod in current)
    if ready >= replicas and not old:
        return Done(ready)
    return Waiting(_describe_wait(deployment, current, old, ready, replicas))


def _find_failures(
    deployment: Deployment, newest: ReplicaSet | None, pods: list[Pod], patience: Patience
) -> Iterator[Failed]:
    now = patience.now
    for pod in pods:
        if pod.metadata.deletion_timestamp is None and not pod.is_ready:
            yield from _judge_pod(pod, now, patience.budget)
    yield from _judge_lost(pods)
    conditions = [*(newest.status.conditions if newest else []), *deployment.status.conditions]
    if refused := _find_refusal(conditions, now):
        yield refused
    yield from _judge_deadline(deployment, patience.since)


def _judge_pod(pod: Pod, now: datetime, budget: timedelta) -> Iterator[Failed]:
    for container in pod.status.container_statuses:
        yield from _judge_ended(pod, container)
        yield from _judge_waiting(pod, container, _age(pod, now))
    yield from _judge_scheduling(pod, now)
    scheduled = pod.find_condition("PodScheduled")
    if scheduled is not None and scheduled.status == "True" and _lasts(scheduled, now, budget + PROGRESS_SLACK):
        yield Failed(
            f"pod {pod.metadata.name} is not ready {budget.total_seconds():.0f} s after it was scheduled: raise the "
            "startup budget, or see its log",
            *_log_of(pod),
        )


def _judge_ended(pod: Pod, container: Container) -> Iterator[Failed]:
    ended = container.ended
    if ended is None:
        return
    waiting = container.state.waiting
    backing_off = waiting is not None and waiting.reason == "CrashLoopBackOff"
    name = f"pod {pod.metadata.name}"
    quote = (pod.metadata.name, container.name, container.state.terminated is None)
    if ended.reason == "OOMKilled":
        yield Failed(f"{name}: OOMKilled (exit code {ended.exit_code}): raise spec.resources.memoryGiB", *quote)
    elif backing_off or container.restart_count >= MAX_RESTARTS:
        why = " ".join(part for part in (ended.reason, ended.message) if part)
        times = f"{container.restart_count} restarts"
        yield Failed(
            f"{name}: CrashLoopBackOff after {times}, exit code {ended.exit_code} ({why or 'no reason'})", *quote
        )


def _judge_waiting(pod: Pod, container: Container, age: timedelta) -> Iterator[Failed]:
    waiting = container.state.waiting
    if waiting is None:
        return
    if waiting.reason in _BROKEN:
        patience = BROKEN_CONTAINER
    elif waiting.reason in _PULL:
        patience = REFUSED_IMAGE if _REFUSED_IMAGE.search(waiting.message) else PULL_TROUBLE
    else:
        return
    if age >= patience:
        yield Failed(f"pod {pod.metadata.name}: {waiting.reason}: {waiting.message or 'no message'}")


def _judge_scheduling(pod: Pod, now: datetime) -> Iterator[Failed]:
    scheduled = pod.find_condition("PodScheduled")
    if scheduled is None or scheduled.status != "False" or scheduled.reason != "Unschedulable":
        return
    if _lasts(scheduled, now, PREEMPTING if pod.status.nominated_node_name else UNSCHEDULABLE):
        yield Failed(f"pod {pod.metadata.name}: Unschedulable: {scheduled.message}")


def _judge_lost(pods: list[Pod]) -> Iterator[Failed]:
    lost = [pod for pod in pods if pod.status.phase == "Failed"]
    if len(lost) >= MAX_LOST_PODS:
        last = lost[-1].status
        yield Failed(f"{len(lost)} pods were lost, the last by {last.reason or 'no reason'}: {last.message}")


def _find_refusal(conditions: list[Condition], now: datetime) -> Failed | None:
    for condition in conditions:
        refused = condition.type == "ReplicaFailure" and condition.status == "True"
        if refused and _lasts(condition, now, REFUSED_PODS):
            return Failed(f"{condition.reason}: {condition.message}")
    return None


def _judge_deadline(deployment: Deployment, since: datetime) -> Iterator[Failed]:
    """Judge the Deployment's own deadline; one that was missed before this wait says nothing about it."""
    for condition in deployment.status.conditions:
        missed = condition.type == "Progressing" and condition.reason == "ProgressDeadlineExceeded"
        if missed and condition.last_update_time is not None and condition.last_update_time >= since:
            yield Failed(f"{condition.reason}: {condition.message}")


def _describe_wait(deployment: Deployment, current: list[Pod], old: list[Pod], ready: int, replicas: int) -> str:
    count = f"{ready} of {replicas} pods ready"
    if deployment.spec.replicas < replicas:
        return f"{count}; the Deployment is sized to {deployment.spec.replicas}"
    states = sorted({_describe_pod(pod) for pod in current if not pod.is_ready})
    if states:
        return f"{count}; {'; '.join(states[:3])}"
    return f"{count}; {len(old)} old pods to end" if old else count


def _describe_pod(pod: Pod) -> str:
    scheduled = pod.find_condition("PodScheduled")
    if scheduled is not None and scheduled.status == "False":
        if scheduled.reason == "SchedulingGated":
            return "waiting for quota"
        return f"{scheduled.reason}: {scheduled.message}"
    for container in pod.status.container_statuses:
        if container.state.waiting is not None:
            return f"{container.state.waiting.reason}: {container.state.waiting.message}".rstrip(": ")
    return "loading the model" if pod.status.phase == "Running" else pod.status.phase


def _log_of(pod: Pod) -> tuple[str, str, bool]:
    names = [container.name for container in pod.status.container_statuses]
    return (pod.metadata.name, names[0] if names else "", False)


def _age(pod: Pod, now: datetime) -> timedelta:
    """Give the time since the pod was scheduled, as its containers' states carry no time of their own."""
    scheduled = pod.find_condition("PodScheduled")
    since = scheduled.last_transition_time if scheduled is not None else None
    since = since or pod.metadata.creation_timestamp
    return timedelta(0) if since is None else now - since


def _lasts(condition: Condition, now: datetime, limit: timedelta) -> bool:
    since = condition.last_transition_time
    return since is not None and now - since >= limit
