"""How many pods a release has at each point of a rollout."""

from math import ceil

from plnt.model.workflow_run import Spec


def fixed_size(spec: Spec) -> int:
    """Give the size of a serving release without an autoscaler: replicas.min, at least one."""
    return max(spec.replicas.min, 1)


def least_size(spec: Spec) -> int:
    """Give the fewest pods of a serving release; only an autoscaler takes the last one away."""
    return fixed_size(spec) if spec.autoscaling.target_tokens_per_second is None else spec.replicas.min


def full_size(spec: Spec, stable_pods: int) -> int:
    """Give the size at weight 100: no less than what serves now, so that promotion never loses capacity."""
    return max(fixed_size(spec), stable_pods)


def canary_size(spec: Spec, stable_pods: int) -> int:
    """Give the size of the canary before its bake: its share of the stable's pods, at least one.

    At trafficPercent 100 nothing would be left to carry the load, so it is the full size.
    """
    percent = spec.canary.traffic_percent
    if percent == 100:
        return full_size(spec, stable_pods)
    return max(ceil(stable_pods * percent / 100), 1)
