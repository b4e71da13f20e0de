"""A pod's status as a kubelet reports it (pure)."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from plnt.clients.kube import Object

NODE_ADDRESS = "127.0.0.1"


@dataclass(frozen=True, slots=True)
class Waiting:
    """The container does not run yet, or not at the moment."""

    reason: str
    message: str = ""


@dataclass(frozen=True, slots=True)
class Running:
    """The container runs; times are RFC 3339."""

    started_at: str


@dataclass(frozen=True, slots=True)
class Terminated:
    """The container ended."""

    exit_code: int
    reason: str
    started_at: str
    finished_at: str
    container_id: str = ""
    message: str = ""


State = Waiting | Running | Terminated


@dataclass(frozen=True, slots=True)
class ContainerView:
    """What is reported about one container."""

    name: str
    image: str
    state: State
    last: Terminated | None = None
    ready: bool = False
    started: bool = False
    restarts: int = 0
    container_id: str = ""


@dataclass(frozen=True, slots=True)
class PodView:
    """What is reported about one pod; no address and no containers before it is set up."""

    containers: Sequence[ContainerView]
    address: str
    started_at: str
    restart_policy: str
    stopping: bool = False
    """The pod is being deleted: nothing starts again."""


def choose_phase(view: PodView) -> str:
    """Give the phase that follows from the containers' states."""
    states = [container.state for container in view.containers]
    if any(isinstance(c.state, Waiting) and c.last is None for c in view.containers):
        return "Pending"
    ended = [state for state in states if isinstance(state, Terminated)]
    final = view.stopping or view.restart_policy == "Never"
    if view.restart_policy == "OnFailure" and not view.stopping:
        final = all(state.exit_code == 0 for state in ended)
    if len(ended) == len(states) and final:
        return "Succeeded" if all(state.exit_code == 0 for state in ended) else "Failed"
    return "Running"


def render_status(view: PodView, previous: Object, now: str) -> Object:
    """Render the status; a condition of ``previous``, the status rendered before, keeps its time while it holds."""
    phase = choose_phase(view)
    status: Object = {
        "phase": phase,
        "hostIP": NODE_ADDRESS,
        "hostIPs": [{"ip": NODE_ADDRESS}],
        "podIP": view.address,
        "podIPs": [{"ip": view.address}],
        "startTime": view.started_at,
        "containerStatuses": [render_container(container) for container in view.containers],
    }
    times = {(c["type"], c["status"]): c["lastTransitionTime"] for c in previous.get("conditions") or []}
    status["conditions"] = [
        condition | {"lastTransitionTime": times.get((condition["type"], condition["status"]), now)}
        for condition in _conditions(view, phase)
    ]
    return status


def render_container(view: ContainerView) -> Object:
    """Render the entry of ``containerStatuses``."""
    return {
        "name": view.name,
        "image": view.image,
        "imageID": f"{view.image}@simulated" if view.container_id else "",
        "containerID": view.container_id,
        "ready": view.ready,
        "started": view.started,
        "restartCount": view.restarts,
        "state": _render_state(view.state),
        "lastState": _render_state(view.last) if view.last else {},
    }


def _render_state(state: State) -> Object:
    match state:
        case Waiting(reason, message):
            return {"waiting": {"reason": reason} | ({"message": message} if message else {})}
        case Running(started_at):
            return {"running": {"startedAt": started_at}}
        case Terminated():
            body: dict[str, Any] = {
                "exitCode": state.exit_code,
                "reason": state.reason,
                "startedAt": state.started_at,
                "finishedAt": state.finished_at,
                "containerID": state.container_id,
            }
            return {"terminated": body | ({"message": state.message} if state.message else {})}


def _conditions(view: PodView, phase: str) -> list[Object]:
    unready = [container.name for container in view.containers if not container.ready]
    if phase in {"Succeeded", "Failed"}:
        why = {"reason": "PodCompleted" if phase == "Succeeded" else "PodFailed"}
    elif unready:
        why = {"reason": "ContainersNotReady", "message": f"containers with unready status: [{' '.join(unready)}]"}
    else:
        why = {}
    ready = "False" if why else "True"
    return [
        {"type": "PodReadyToStartContainers", "status": "True"},
        {"type": "Initialized", "status": "True"},
        {"type": "ContainersReady", "status": ready, **why},
        {"type": "Ready", "status": ready, **why},
    ]
