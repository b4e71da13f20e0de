"""From a WorkflowRun's spec to the values of a runtime chart."""

import re
from collections.abc import Mapping
from typing import Any

from plnt.errors import SpecInvalid
from plnt.model.desired import Policy
from plnt.model.messages import GpuClass, InstallRelease

MAX_PRE_STOP_SECONDS = 15
"""Longest wait between the removal from the endpoints and SIGTERM; KServe's value."""
LEAST_SHUTDOWN_SECONDS = 60
"""Least time for streams in flight after SIGTERM; an idle engine ends at once."""

_FOLDER = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")

Values = dict[str, Any]


def render_values(request: InstallRelease, cache_volume: Mapping[str, Any]) -> Values:
    """Give the chart values of a release; ``cache_volume`` is the volume source of the weights cache.

    They hold nothing of the run, so that a second run of the same revision changes no pod, and no secret.

    Raises:
        SpecInvalid: the engine cannot be told that model name.
    """
    spec = request.spec
    _check_model_name(spec.model.name)
    return {
        "fullnameOverride": request.release,
        "owner": request.base,
        "revision": request.revision,
        "labels": dict(request.options.labels),
        "model": {"name": spec.model.name},
        "weights": {
            "volume": dict(cache_volume),
            "subPath": f"trees/{request.tree.digest}",
            "mountPath": choose_mount_path(spec.model.name),
        },
        "quantization": spec.model.quantization.value if request.tree.online_quantization else "",
        "resources": {
            "gpu": spec.resources.gpu,
            "gpuResource": request.gpu_class.resource_name,
            "memoryGiB": spec.resources.memory_gib,
        },
        "paused": request.replicas == 0,
        **_metrics(request.policy),
        **_placement(request.gpu_class),
        **_times(request.policy),
    }


def choose_mount_path(model_name: str) -> str:
    """Give where the weights are mounted: some engines serve a model under the name of its folder."""
    folder = model_name.rpartition("/")[2]
    return f"/models/{folder}" if _FOLDER.fullmatch(folder) else "/models/weights"


def _check_model_name(name: str) -> None:
    if name.startswith("-"):
        raise SpecInvalid(f"spec.model.name: {name!r} starts with a dash, which engines read as an option")
    if not name.isprintable():
        raise SpecInvalid(f"spec.model.name: {name!r} holds characters that cannot be printed: leave them out")


def _placement(gpu_class: GpuClass) -> Values:
    return {
        "nodeSelector": dict(gpu_class.node_selector),
        "tolerations": [toleration.model_dump() for toleration in gpu_class.tolerations],
    }


def _metrics(policy: Policy) -> Values:
    """Give the window of the recording rules; the chart's own for the runtime unless the installation has one."""
    if policy.rate_window_seconds is None:
        return {}
    interval = max(1, min(15, policy.rate_window_seconds // 4))
    return {"metrics": {"windowSeconds": policy.rate_window_seconds, "intervalSeconds": interval}}


def _times(policy: Policy) -> Values:
    return {
        "startupBudgetSeconds": policy.startup_budget_seconds,
        "preStopSeconds": min(policy.drain_seconds, MAX_PRE_STOP_SECONDS),
        "shutdownTimeoutSeconds": max(policy.drain_seconds, LEAST_SHUTDOWN_SECONDS),
    }
