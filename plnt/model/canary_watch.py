"""What a watched canary's pods must keep: readiness, their run, and their being there."""

from plnt.model.message import Message
from plnt.model.pod_state import Pod


class CanaryWatch(Message):
    """What a watch has seen so far; kept over a restart of its worker."""

    started: float
    """Seconds since the epoch at the watch's first look."""
    restarts: dict[str, int] = {}
    """Pod uid -> restarts when it was first seen ready."""


def find_canary_fault(watch: CanaryWatch, pods: list[Pod]) -> str | None:
    """Name the first fault of a pod that was ready once; none when all still are.

    The first look follows a wait for ready pods and a smoke test: a pod that is not ready then has just lost it.
    """
    if not watch.restarts:
        return _find_first_fault([pod for pod in pods if _should_be_ready(pod)])
    alive = {pod.metadata.uid: pod for pod in pods}
    for uid, restarts in watch.restarts.items():
        pod = alive.get(uid)
        if pod is None:
            return "a pod that was ready is gone"
        if fault := _find_pod_fault(pod, restarts):
            return f"pod {pod.metadata.name} {fault}"
    return None


def extend_watch(watch: CanaryWatch, pods: list[Pod]) -> CanaryWatch:
    """Take up pods that became ready since."""
    ready = {pod.metadata.uid: pod.restarts for pod in pods if pod.is_ready}
    return watch.model_copy(update={"restarts": ready | watch.restarts})


def _should_be_ready(pod: Pod) -> bool:
    """Leave out what a node refused at the start, or what is ending: others were ready in its place."""
    return pod.metadata.deletion_timestamp is None and pod.status.phase not in {"Failed", "Succeeded"}


def _find_first_fault(pods: list[Pod]) -> str | None:
    for pod in pods:
        if not pod.is_ready:
            return f"pod {pod.metadata.name} {_find_pod_fault(pod, 0)}"
    return None if pods else "it has no pods"


def _find_pod_fault(pod: Pod, restarts: int) -> str | None:
    if pod.metadata.deletion_timestamp is not None:
        return "is being deleted"
    for container in pod.status.container_statuses:
        ended = container.state.terminated
        if ended is None and pod.restarts > restarts:
            ended = container.last_state.terminated
        if ended is not None:
            said = f" ({ended.reason})" if ended.reason else ""
            hint = ": raise spec.resources.memoryGiB" if ended.reason == "OOMKilled" else ""
            return f"container {container.name} ended with exit code {ended.exit_code}{said}{hint}"
    if pod.restarts > restarts:
        return "restarted"
    return None if pod.is_ready else "is no longer ready"
