"""The autoscaler of a WorkflowRun as a manifest: which kind it is, why, and what its condition says.

It aims at generated tokens per second and GPU, as the recording rules of the runtime charts give them. A Pods metric
says nothing about a Deployment without pods, so a HorizontalPodAutoscaler never goes below one; below that KEDA
counts requests at the gateway.
"""

from enum import StrEnum
from typing import Any

from plnt.model import names, traffic
from plnt.model.desired import Policy
from plnt.model.message import Message
from plnt.model.messages import AutoscalingState
from plnt.model.sizes import fixed_size
from plnt.model.traffic import Site
from plnt.model.workflow_run import Spec

Object = dict[str, Any]

TOKENS_METRIC = "plnt_tokens_per_sec_per_gpu"
"""Generated tokens per second and GPU of one pod."""
WAITING_METRIC = "plnt_requests_waiting"
"""Requests that wait in one pod's queue; throughput alone stops growing when a pod is full."""
METRICS_API = "custom.metrics.k8s.io"
GATEWAY_WINDOW = "2m"
"""Span over which requests at the gateway count as demand; two of Prometheus's longest usual scrape intervals."""

_SCALER = "autoscaling/v2"
_KEDA = "keda.sh/v1alpha1"


class Kind(StrEnum):
    """What holds the size of the serving release."""

    NONE = "none"
    HPA = "HorizontalPodAutoscaler"
    KEDA = "ScaledObject"


class Plan(Message):
    """The kind of autoscaler, and why it cannot do all that the spec asks for; both empty = it can."""

    kind: Kind
    reason: str = ""
    message: str = ""


def is_wanted(spec: Spec) -> bool:
    """Tell whether an autoscaler, and not the rollout, holds the size of what serves."""
    return spec.autoscaling.target_tokens_per_second is not None


def plan_autoscaler(spec: Spec, policy: Policy, *, keda: bool) -> Plan:
    """Choose the autoscaler; ``keda``: the cluster serves ScaledObjects."""
    if not is_wanted(spec):
        return plan_fixed(spec)
    if spec.replicas.min > 0:
        return Plan(kind=Kind.HPA)
    if not keda:
        text = "replicas.min 0 needs KEDA, whose ScaledObject this cluster does not serve: one pod stays; install KEDA"
        return Plan(kind=Kind.HPA, reason="ScaleToZeroUnavailable", message=text)
    if not policy.prometheus_url:
        text = "replicas.min 0 needs PLNT_PROMETHEUS_URL, which KEDA asks for the load: one pod stays; set it"
        return Plan(kind=Kind.HPA, reason="ScaleToZeroUnavailable", message=text)
    return Plan(kind=Kind.KEDA)


def plan_fixed(spec: Spec) -> Plan:
    """Say why nothing sizes a model without a target; that follows from the spec alone."""
    size = _count(fixed_size(spec))
    if spec.replicas.min == 0:
        text = f"replicas.min 0 needs autoscaling.targetTokensPerSecond, which is not set: {size} stays"
        return Plan(kind=Kind.NONE, reason="ScaleToZeroUnavailable", message=text)
    text = f"no targetTokensPerSecond is set: the size is max(replicas.min, 1), {size}"
    return Plan(kind=Kind.NONE, reason="NotRequested", message=text)


def describe_plan(plan: Plan, spec: Spec, release: str, *, served: bool) -> AutoscalingState:
    """Give what the condition AutoscalingReady says; ``served``: the cluster serves the metrics of pods."""
    if plan.reason:
        return AutoscalingState(ready=False, reason=plan.reason, message=plan.message)
    low, high = bounds(spec)
    low = low if plan.kind is Kind.KEDA else fixed_size(spec)
    target = spec.autoscaling.target_tokens_per_second
    text = f"{plan.kind} keeps {release} between {low} and {high} pods at {target} tokens per second and GPU"
    if plan.kind is Kind.HPA and not served:
        missing = f"the cluster does not answer for {METRICS_API}, so its size stays: install prometheus-adapter"
        return AutoscalingState(ready=False, reason="MetricsUnavailable", message=f"{text}; {missing}")
    return AutoscalingState(ready=True, reason="Autoscaling", message=text)


def bounds(spec: Spec) -> tuple[int, int]:
    """Give the fewest and the most pods that the spec allows."""
    return spec.replicas.min, max(spec.replicas.max, spec.replicas.min, 1)


def render_hpa(site: Site, release: str, spec: Spec, policy: Policy) -> Object:
    """Render the HorizontalPodAutoscaler; one pod at a time, since each loads a model."""
    _, most = bounds(spec)
    target = spec.autoscaling.target_tokens_per_second
    pace = {"type": "Pods", "value": 1, "periodSeconds": policy.scale_pace_seconds}
    return {
        "apiVersion": _SCALER,
        "kind": Kind.HPA.value,
        "metadata": traffic.render_metadata(site, {}),
        "spec": {
            "scaleTargetRef": _target(release),
            "minReplicas": fixed_size(spec),
            "maxReplicas": most,
            "metrics": [_pods_metric(TOKENS_METRIC, target), _pods_metric(WAITING_METRIC, policy.waiting_target)],
            "behavior": {
                "scaleUp": {"stabilizationWindowSeconds": 0, "policies": [pace]},
                "scaleDown": {"stabilizationWindowSeconds": policy.scale_down_seconds, "policies": [pace]},
            },
        },
    }


def render_scaled_object(site: Site, release: str, spec: Spec, policy: Policy) -> Object:
    """Render KEDA's ScaledObject, which goes down to no pod while the gateway sees no request.

    Sums over the release's pods, since KEDA compares one number; each is divided by the number of pods.
    """
    least, most = bounds(spec)
    target = spec.autoscaling.target_tokens_per_second
    pods = f'{{namespace="{site.namespace}",pod=~"{release}-.+"}}'
    behavior = render_hpa(site, release, spec, policy)["spec"]["behavior"]
    return {
        "apiVersion": _KEDA,
        "kind": Kind.KEDA.value,
        "metadata": traffic.render_metadata(site, {}),
        "spec": {
            "scaleTargetRef": _target(release),
            "minReplicaCount": least,
            "maxReplicaCount": most,
            "cooldownPeriod": policy.scale_to_zero_seconds,
            "advanced": {"horizontalPodAutoscalerConfig": {"behavior": behavior}},
            "triggers": [
                _trigger(policy, f"sum({TOKENS_METRIC}{pods})", target),
                _trigger(policy, f"sum({WAITING_METRIC}{pods})", policy.waiting_target),
                _trigger(policy, _demand(site), 1),
            ],
        },
    }


def _demand(site: Site) -> str:
    """Give 1 while callers' sidecars or gateways send requests to the model, those answered 503 included."""
    services = f'destination_service_namespace="{site.namespace}",destination_service_name=~"{site.base}(-[0-9a-f]+)?"'
    return f'sum(rate(istio_requests_total{{reporter="source",{services}}}[{GATEWAY_WINDOW}])) > bool 0'


def _trigger(policy: Policy, query: str, threshold: int | None) -> Object:
    metadata = {"serverAddress": policy.prometheus_url, "query": query, "threshold": str(threshold)}
    return {"type": "prometheus", "metricType": "AverageValue", "metadata": metadata}


def _pods_metric(name: str, target: int | None) -> Object:
    value = {"type": "AverageValue", "averageValue": str(target)}
    return {"type": "Pods", "pods": {"metric": {"name": name}, "target": value}}


def _target(release: str) -> Object:
    return {"apiVersion": "apps/v1", "kind": "Deployment", "name": release}


def move_target(found: Object, site: Site, release: str) -> Object:
    """Give an autoscaler as it was read, aimed at another release and nothing else changed."""
    return {
        "apiVersion": found["apiVersion"],
        "kind": found["kind"],
        "metadata": traffic.render_metadata(site, {}),
        "spec": {**found["spec"], "scaleTargetRef": _target(release)},
    }


def find_difference(wanted: Object, seen: Object | None) -> str:
    """Give what an autoscaler read back does otherwise than ``wanted``; empty when nothing."""
    if seen is None:
        return "it is gone"
    kept = ("scaleTargetRef", "minReplicas", "maxReplicas", "minReplicaCount", "maxReplicaCount")
    for key in kept:
        if key in wanted["spec"] and seen["spec"].get(key) != wanted["spec"][key]:
            return f"its {key} is {seen['spec'].get(key)}"
    return ""


def is_own(site: Site, found: Object) -> bool:
    """Tell whether an autoscaler of the base name was written for this WorkflowRun."""
    annotations = found["metadata"].get("annotations") or {}
    return bool(annotations.get(names.CLAIM_ANNOTATION) == site.name)


def _count(pods: int) -> str:
    return "1 pod" if pods == 1 else f"{pods} pods"
