from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from plnt.model.pod_state import ReleasePods
from plnt.model.pod_verdict import Done, Failed, Patience, Verdict, Waiting, judge_release

START = datetime(2026, 1, 1, tzinfo=UTC)
BUDGET = timedelta(seconds=600)


def at(seconds: float) -> str:
    return (START + timedelta(seconds=seconds)).isoformat()


def deployment(
    replicas: int = 1, *, observed: int = 1, conditions: list[dict[str, Any]] | None = None
) -> dict[str, Any]:
    return {
        "metadata": {"name": "m-1", "uid": "d", "generation": 1},
        "spec": {"replicas": replicas},
        "status": {"observedGeneration": observed, "conditions": conditions or []},
    }


def replica_set(uid: str = "s1", revision: int = 1, conditions: list[dict[str, Any]] | None = None) -> dict[str, Any]:
    annotations = {"deployment.kubernetes.io/revision": str(revision)}
    return {
        "metadata": {"name": uid, "uid": uid, "ownerReferences": [{"uid": "d"}], "annotations": annotations},
        "status": {"conditions": conditions or []},
    }


def pod(name: str = "p1", owner: str = "s1", *, ready: bool = False, **status: Any) -> dict[str, Any]:
    conditions = [
        {"type": "PodScheduled", "status": "True", "lastTransitionTime": at(0)},
        {"type": "Ready", "status": "True" if ready else "False"},
    ]
    meta = {"name": name, "uid": name, "ownerReferences": [{"uid": owner}], "creationTimestamp": at(0)}
    return {"metadata": meta, "status": {"phase": "Running", "conditions": conditions, **status}}


def broken(**container: Any) -> dict[str, Any]:
    return pod(containerStatuses=[{"name": "engine", **container}])


def stuck(reason: str, message: str = "", **status: Any) -> dict[str, Any]:
    scheduled = {"type": "PodScheduled", "status": "False", "reason": reason, "message": message}
    return pod(conditions=[{**scheduled, "lastTransitionTime": at(0)}], phase="Pending", **status)


def judge(pods: list[dict[str, Any]], seconds: float = 1, replicas: int = 1, **seen: Any) -> Verdict:
    sets = seen.get("sets", [replica_set()])
    release = ReleasePods.parse(seen.get("deployment", deployment(replicas)), sets, pods)
    return judge_release(release, replicas, Patience(START, START + timedelta(seconds=seconds), BUDGET))


def waiting(reason: str, message: str = "") -> dict[str, Any]:
    return broken(state={"waiting": {"reason": reason, "message": message}})


OOM = {"terminated": {"exitCode": 137, "reason": "OOMKilled"}}
CRASH = {"terminated": {"exitCode": 1, "reason": "Error"}}
GONE_IMAGE = "manifest unknown"


def test_release_is_done_when_its_pods_are_ready() -> None:
    assert judge([pod(ready=True), pod("p2", ready=True)], replicas=2) == Done(2)


def test_release_of_no_pods_is_done_at_once() -> None:
    assert judge([], replicas=0) == Done(0)


def test_old_pods_hide_neither_readiness_nor_its_lack() -> None:
    sets = [replica_set("s1", 1), replica_set("s2", 2)]
    old = pod("old", "s1", ready=True)
    assert judge([old, pod("new", "s2")], sets=sets) == Waiting("0 of 1 pods ready; loading the model")
    assert judge([old, pod("new", "s2", ready=True)], sets=sets) == Waiting("1 of 1 pods ready; 1 old pods to end")


def test_ready_pod_that_is_being_deleted_does_not_count() -> None:
    ending = pod(ready=True)
    ending["metadata"]["deletionTimestamp"] = at(0)
    assert isinstance(judge([ending]), Waiting)


def test_spec_that_no_controller_has_seen_is_waited_for() -> None:
    assert isinstance(judge([pod(ready=True)], deployment=deployment(observed=0)), Waiting)


def test_missing_deployment_fails() -> None:
    assert judge([], deployment=None) == Failed("its Deployment is gone")


def test_smaller_deployment_is_named() -> None:
    assert judge([pod(ready=True)], replicas=2, deployment=deployment(1)) == Waiting(
        "1 of 2 pods ready; the Deployment is sized to 1"
    )


@pytest.mark.parametrize(
    ("seen", "patient_until", "says"),
    [
        pytest.param(
            waiting("ImagePullBackOff", GONE_IMAGE), 15, "ImagePullBackOff: manifest unknown", id="no such image"
        ),
        pytest.param(waiting("ErrImagePull", "429 rate limit"), 240, "ErrImagePull: 429 rate limit", id="rate limit"),
        pytest.param(waiting("CreateContainerConfigError", 'secret "x"'), 30, 'secret "x"', id="missing Secret"),
        pytest.param(stuck("Unschedulable", "0/2 nodes"), 120, "Unschedulable: 0/2 nodes", id="no room"),
        pytest.param(stuck("Unschedulable", "0/2 nodes", nominatedNodeName="n"), 900, "Unschedulable", id="preempting"),
        pytest.param(pod(), 900, "not ready 600 s after it was scheduled", id="start over budget"),
    ],
)
def test_trouble_that_may_pass_fails_after_its_patience(seen: dict[str, Any], patient_until: float, says: str) -> None:
    assert isinstance(judge([seen], patient_until - 1), Waiting)
    verdict = judge([seen], patient_until)
    assert isinstance(verdict, Failed)
    assert says in verdict.message


@pytest.mark.parametrize(
    ("seen", "says"),
    [
        pytest.param(broken(lastState=OOM, restartCount=1), "raise spec.resources.memoryGiB", id="out of memory"),
        pytest.param(
            broken(lastState=CRASH, restartCount=2, state={"waiting": {"reason": "CrashLoopBackOff"}}),
            "exit code 1 (Error)",
            id="crash loop",
        ),
        pytest.param(broken(lastState=CRASH, restartCount=3), "after 3 restarts", id="three restarts"),
    ],
)
def test_ended_container_fails_at_once_and_has_a_log_to_quote(seen: dict[str, Any], says: str) -> None:
    verdict = judge([seen])
    assert isinstance(verdict, Failed)
    assert says in verdict.message
    assert (verdict.pod, verdict.container, verdict.previous) == ("p1", "engine", True)


def test_one_restart_is_forgiven() -> None:
    assert isinstance(judge([broken(lastState=CRASH, restartCount=1)]), Waiting)


def test_quota_that_refuses_the_pods_is_named() -> None:
    refused = {"type": "ReplicaFailure", "status": "True", "reason": "FailedCreate", "message": "exceeded quota"}
    sets = [replica_set(conditions=[{**refused, "lastTransitionTime": at(0)}])]
    assert isinstance(judge([], 29, sets=sets), Waiting)
    assert judge([], 30, sets=sets) == Failed("FailedCreate: exceeded quota")


def test_pods_that_nodes_refuse_are_replaced_twice() -> None:
    lost = [pod(f"p{n}", phase="Failed", reason="Evicted", message="disk") for n in range(3)]
    assert isinstance(judge(lost[:2]), Waiting)
    assert judge(lost) == Failed("3 pods were lost, the last by Evicted: disk")


def test_quota_of_a_queue_is_waited_for_without_end() -> None:
    assert judge([stuck("SchedulingGated")], 86_400) == Waiting("0 of 1 pods ready; waiting for quota")


def test_deadline_missed_before_this_wait_is_no_failure() -> None:
    missed = {"type": "Progressing", "status": "False", "reason": "ProgressDeadlineExceeded", "message": "late"}

    def seen(seconds: float) -> dict[str, Any]:
        return deployment(conditions=[{**missed, "lastUpdateTime": at(seconds)}])

    assert isinstance(judge([], deployment=seen(-1)), Waiting)
    assert judge([], deployment=seen(1)) == Failed("ProgressDeadlineExceeded: late")
