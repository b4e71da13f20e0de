"""Reads a release's pods until they are ready, failed, gone, or have baked long enough."""

import asyncio
from datetime import timedelta

from temporalio import activity

from activities.clock import ServerClock
from activities.progress import heartbeat, report_progress
from plnt.clients.kube import DEPLOYMENTS, PODS, REPLICA_SETS, Kube
from plnt.errors import CanaryUnhealthy, DeployFailed, PlntError
from plnt.model.canary_watch import CanaryWatch, extend_watch, find_canary_fault
from plnt.model.messages import AwaitRelease, WatchCanary
from plnt.model.pod_state import Pod, ReleasePods
from plnt.model.pod_verdict import Done, Failed, Patience, judge_release
from plnt.model.traffic import INSTANCE_LABEL

POLL_SECONDS = 1.0
WATCH_SECONDS = 0.4
"""Time between two looks at a canary that carries traffic: a crash is noticed well under two seconds."""
LOG_SECONDS = 5.0
LOG_LINES = 5
MAX_LOG_CHARS = 400


async def fetch_release(kube: Kube, namespace: str, release: str) -> ReleasePods:
    """Read the release's Deployment, ReplicaSets and pods, the Deployment first.

    In that order the sets and pods are never older than the generation that the Deployment reports.
    """
    labels = f"{INSTANCE_LABEL}={release}"
    deployment = await kube.find(DEPLOYMENTS, namespace, release)
    (sets, _), (pods, _) = await asyncio.gather(
        kube.list(REPLICA_SETS, namespace, labels=labels), kube.list(PODS, namespace, labels=labels)
    )
    return ReleasePods.parse(deployment, sets, pods)


async def fetch_pods(kube: Kube, namespace: str, release: str) -> list[Pod]:
    """Read the release's pods, those that are ending included."""
    pods, _ = await kube.list(PODS, namespace, labels=f"{INSTANCE_LABEL}={release}")
    return [Pod.model_validate(pod) for pod in pods]


async def await_ready(kube: Kube, request: AwaitRelease) -> int:
    """Wait until the release's pods are ready, saying in the status what is waited for; gives how many are.

    Raises:
        DeployFailed: they cannot get ready, with the pod's own reason.
    """
    namespace, release = request.ref.namespace, request.release
    budget = timedelta(seconds=request.policy.startup_budget_seconds)
    since, clock = activity.info().scheduled_time, ServerClock()
    said = ""
    while True:
        seen = await fetch_release(kube, namespace, release)
        verdict = judge_release(seen, request.replicas, Patience(since, clock.now(), budget))
        if isinstance(verdict, Done):
            return verdict.pods
        if isinstance(verdict, Failed):
            raise DeployFailed(f"release {release}: {verdict.message}{await _quote_log(kube, namespace, verdict)}")
        if verdict.message != said:
            said = verdict.message
            await report_progress(said)
        await asyncio.sleep(POLL_SECONDS)


async def watch_canary(kube: Kube, request: WatchCanary) -> None:
    """Watch the canary's pods for the bake time, counted from the activity's first look.

    Raises:
        CanaryUnhealthy: a pod that was ready lost readiness, restarted, ended or went away.
    """
    clock = ServerClock()
    watch = _resume_watch(clock)
    async with heartbeat(lambda: watch):
        while True:
            pods = await fetch_pods(kube, request.ref.namespace, request.release)
            fault = find_canary_fault(watch, pods)
            if fault is not None:
                raise CanaryUnhealthy(f"release {request.release}: {fault}")
            watch = extend_watch(watch, pods)
            left = watch.started + request.seconds - clock.time()
            if left <= 0:
                return
            await asyncio.sleep(min(WATCH_SECONDS, left))


def _resume_watch(clock: ServerClock) -> CanaryWatch:
    details = activity.info().heartbeat_details
    return CanaryWatch.model_validate(details[0]) if details else CanaryWatch(started=clock.time())


async def _quote_log(kube: Kube, namespace: str, failed: Failed) -> str:
    """Give the last line of the failed container's log; nothing when it cannot be read."""
    if not failed.pod:
        return ""
    path = PODS.path(namespace, failed.pod, "log")
    query = {"container": failed.container, "tailLines": str(LOG_LINES), "limitBytes": "8192"}
    query |= {"previous": "true"} if failed.previous else {}
    try:
        async with asyncio.timeout(LOG_SECONDS), kube.stream(path, query, LOG_SECONDS) as answer:
            text = (await answer.content.read(8192)).decode(errors="replace")
    except (PlntError, TimeoutError, OSError):
        return ""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return f"; its log ends: {lines[-1][:MAX_LOG_CHARS]}" if lines else ""
