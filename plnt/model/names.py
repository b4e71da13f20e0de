"""Every derived name: workflow IDs, releases, hosts, labels, annotations."""

import hashlib
import re

GROUP = "plnt.work"
VERSION = "v1"
PLURAL = "workflowruns"
API_VERSION = f"{GROUP}/{VERSION}"
KIND = "WorkflowRun"

FINALIZER = "plnt.work/teardown"
FIELD_MANAGER = "plnt"
"""Field manager of every object that plnt applies."""
STATUS_FIELD_MANAGER = "plnt-bridge"

OWNER_LABEL = "plnt.work/owner"
"""Base name of the WorkflowRun that a release or object belongs to."""
RUN_LABEL = "plnt.work/run"
"""Temporal run ID that wrote a release last."""
REVISION_LABEL = "plnt.work/revision"
"""Revision of a release's pods."""
CLAIM_ANNOTATION = "plnt.work/claimed-by"
"""Name of the WorkflowRun that claimed a front Service."""
RUN_ANNOTATION = "plnt.work/run"
SERVING_ANNOTATION = "plnt.work/serving"
"""On the route: revision that Promoting put at weight 100."""
RECORD_ANNOTATION = "plnt.work/serving-record"
"""On the front Service: the serving record as JSON, written in the same apply as the selector."""

SERVICE_PORT = 8000
"""Port of front and revision Services, for every runtime; its target port is named ``http``."""

MAX_BASE_CHARS = 44
"""Longest base name: Helm allows 53 for a release, ``-`` and the revision take 9."""
REVISION_CHARS = 8

_HASH_CHARS = 6


def base_name(name: str) -> str:
    """Give the DNS-1035 label that every object of the WorkflowRun ``name`` starts with.

    Dots become dashes, a leading digit gets ``m-``; a hash is appended only when the name is cut.
    """
    label = re.sub(r"[^a-z0-9-]", "-", name.lower())
    if not label[:1].isalpha():
        label = f"m-{label}"
    label = label.rstrip("-")
    if len(label) <= MAX_BASE_CHARS:
        return label
    digest = hashlib.sha256(name.encode()).hexdigest()[:_HASH_CHARS]
    return f"{label[: MAX_BASE_CHARS - _HASH_CHARS - 1].rstrip('-')}-{digest}"


def release_name(base: str, revision: str) -> str:
    """Name the Helm release, Deployment and Service of one revision."""
    return f"{base}-{revision}"


def revision_of(base: str, release: str) -> str:
    """Give the revision in a release name; the inverse of `release_name`."""
    return release.removeprefix(f"{base}-")


def service_host(name: str, namespace: str, cluster_domain: str = "cluster.local") -> str:
    """Give the fully qualified host of a Service."""
    return f"{name}.{namespace}.svc.{cluster_domain}"


def endpoint_url(base: str, namespace: str, cluster_domain: str = "cluster.local") -> str:
    """Give the in-cluster URL of the model."""
    return f"http://{service_host(base, namespace, cluster_domain)}:{SERVICE_PORT}"


def rollout_id(namespace: str, name: str) -> str:
    """Give the workflow ID of a WorkflowRun's rollout; a namespace has no dot, so it splits without doubt."""
    return f"rollout.{namespace}.{name}"


def reporter_id(namespace: str, name: str) -> str:
    """Give the workflow ID of a WorkflowRun's status reporter."""
    return f"status.{namespace}.{name}"


def gpu_pool_id(gpu_class: str) -> str:
    """Give the workflow ID of the line for one GPU class."""
    return f"gpu-pool.{gpu_class.replace('/', '.')}"


def parse_workflow_id(workflow_id: str) -> tuple[str, str]:
    """Give namespace and name of a rollout's or a reporter's workflow ID.

    Raises:
        ValueError: the ID is neither.
    """
    kind, _, rest = workflow_id.partition(".")
    namespace, _, name = rest.partition(".")
    if kind not in {"rollout", "status"} or not namespace or not name:
        raise ValueError(f"{workflow_id!r} is no workflow ID of a rollout or a status reporter")
    return namespace, name
