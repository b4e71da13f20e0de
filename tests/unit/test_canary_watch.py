from typing import Any

import pytest

from plnt.model.canary_watch import CanaryWatch, extend_watch, find_canary_fault
from plnt.model.pod_state import Pod


def pod(uid: str = "u1", *, ready: bool = True, meta: dict[str, Any] | None = None, **container: Any) -> Pod:
    conditions = [{"type": "Ready", "status": "True" if ready else "False"}]
    statuses = [{"name": "engine", "ready": ready, **container}]
    return Pod.model_validate(
        {
            "metadata": {"name": f"pod-{uid}", "uid": uid, **(meta or {})},
            "status": {"phase": "Running", "conditions": conditions, "containerStatuses": statuses},
        }
    )


WATCH = CanaryWatch(started=0, restarts={"u1": 1})
ENDED = {"terminated": {"exitCode": 137, "reason": "OOMKilled"}}


@pytest.mark.parametrize(
    ("pods", "fault"),
    [
        pytest.param([pod(restartCount=1)], None, id="as it was"),
        pytest.param([pod(restartCount=1), pod("u2", ready=False)], None, id="another pod starts"),
        pytest.param([pod(ready=False, restartCount=1)], "pod pod-u1 is no longer ready", id="readiness"),
        pytest.param([pod(restartCount=2)], "pod pod-u1 restarted", id="restart"),
        pytest.param(
            [pod(restartCount=2, lastState=ENDED)],
            "pod pod-u1 container engine ended with exit code 137 (OOMKilled): raise spec.resources.memoryGiB",
            id="restart with its cause",
        ),
        pytest.param(
            [pod(restartCount=1, state=ENDED)],
            "pod pod-u1 container engine ended with exit code 137 (OOMKilled): raise spec.resources.memoryGiB",
            id="ended",
        ),
        pytest.param(
            [pod(restartCount=1, meta={"deletionTimestamp": "2026-01-01T00:00:00Z"})],
            "pod pod-u1 is being deleted",
            id="deleted",
        ),
        pytest.param([], "a pod that was ready is gone", id="gone"),
    ],
)
def test_fault_of_a_pod_that_was_ready_is_named(pods: list[Pod], fault: str | None) -> None:
    assert find_canary_fault(WATCH, pods) == fault


def test_pod_is_watched_from_its_first_readiness_with_the_restarts_it_had_then() -> None:
    watch = extend_watch(CanaryWatch(started=0), [pod(restartCount=2), pod("u2", ready=False)])
    assert watch.restarts == {"u1": 2}
    assert extend_watch(watch, [pod(restartCount=3), pod("u2")]).restarts == {"u1": 2, "u2": 0}


@pytest.mark.parametrize(
    ("pods", "fault"),
    [
        pytest.param([pod(restartCount=1)], None, id="restarted before it was ready"),
        pytest.param([pod(), pod("u2", ready=False)], "pod pod-u2 is no longer ready", id="readiness"),
        pytest.param(
            [pod(ready=False, restartCount=1, lastState=ENDED)],
            "pod pod-u1 container engine ended with exit code 137 (OOMKilled): raise spec.resources.memoryGiB",
            id="crash before the first look",
        ),
        pytest.param(
            [pod(), pod("u2", ready=False, meta={"deletionTimestamp": "2026-01-01T00:00:00Z"})], None, id="old pod ends"
        ),
        pytest.param([], "it has no pods", id="nothing there"),
    ],
)
def test_first_look_expects_every_pod_to_be_ready(pods: list[Pod], fault: str | None) -> None:
    assert find_canary_fault(CanaryWatch(started=0), pods) == fault
