"""What steps take and give, and what signals carry. Every step takes one model and gives one model.

Namespace and name of the WorkflowRun travel in ``ref``; the run ID is the activity's own
(``activity.info().workflow_run_id``) and is never an argument.
"""

from typing import Literal

from plnt.model.desired import Policy, Ref
from plnt.model.message import Message
from plnt.model.model_shape import ModelShape
from plnt.model.options import Options
from plnt.model.workflow_run import Quantization, Runtime, Spec


class Done(Message):
    """The step's world is as asked, read back."""


class Target(Message):
    """The WorkflowRun alone."""

    ref: Ref


class DropFinalizer(Message):
    """Remove the finalizer from the object with this uid; another uid or none is left alone."""

    ref: Ref
    uid: str


class SurveyRequest(Message):
    """Look at what exists of a WorkflowRun; ``claim`` takes the base name first (never at deletion)."""

    ref: Ref
    base: str
    policy: Policy
    claim: bool
    runtime: Runtime | None = None
    """Runtime whose chart takes the extra values; none = they are not looked at."""
    values_from: str = ""
    """ConfigMap with extra chart values; empty = none."""


class ServingRecord(Message):
    """What ``settle`` wrote down about the serving revision."""

    revision: str
    release: str
    generation: int
    identity: str
    pods_digest: str
    """Digest of the pod-relevant spec and options; equal = applied in place."""
    tree: str = ""
    """Digest of the weights tree."""
    gpu_class: str = ""


class ReleaseSeen(Message):
    """One Helm release of the WorkflowRun."""

    name: str
    revision: str
    status: str
    """Helm's own word, such as ``deployed`` or ``pending-install``."""
    replicas: int
    """``spec.replicas`` of its Deployment; 0 when there is none."""
    ready: int


class ExtraValues(Message):
    """Extra chart values as they were checked; only their digest travels."""

    name: str
    """ConfigMap that holds them."""
    digest: str = ""
    fault: str = ""
    """Why they cannot be used, for people; empty = they can."""
    image_tag: str = ""
    """Tag of the engine's image that they ask for; empty = the chart's own."""
    request_tokens: int = 0
    """Longest request that they allow the engine, in tokens; 0 = they do not say."""
    offloads: bool = False
    """They let the engine keep a part of the weights outside the GPUs."""


class World(Message):
    """What exists of a WorkflowRun."""

    serving: str | None = None
    """Revision that serves: the route's annotation, else the front Service's selector."""
    record: ServingRecord | None = None
    weights: dict[str, int] = {}
    """Revision -> weight on the route; empty when there is no route."""
    releases: list[ReleaseSeen] = []
    selector_revision: str | None = None
    """Revision that the front Service selects; none = no selector or no Service."""
    chart_versions: dict[str, str] = {}
    """Runtime -> version of the chart that this deploy pool installs; part of the revision."""
    values: ExtraValues | None = None
    """The extra chart values that were asked for; none = none."""


class ResolveClass(Message):
    """Find how nodes name the class, and whether any node could hold one pod."""

    ref: Ref
    gpu_class: str
    gpu: int
    memory_gib: int


class Toleration(Message):
    """A pod's toleration."""

    key: str
    operator: Literal["Exists", "Equal"] = "Exists"
    value: str = ""
    effect: str = "NoSchedule"


class GpuClass(Message):
    """How pods ask for the class."""

    resource_name: str
    node_selector: dict[str, str] = {}
    tolerations: list[Toleration] = []
    memory_mib: int = 0
    """Memory of one GPU of the class, in MiB; 0 = unknown."""


class ResolveSource(Message):
    """Pin the source to a plan and check that runtime, quantization and checkpoint agree."""

    ref: Ref
    runtime: Runtime
    storage_uri: str
    quantization: Quantization
    credentials: str = ""
    """Secret with access to the source; empty = the pool's own identity."""
    include: list[str] = []
    exclude: list[str] = []
    """Globs of the files to pull and to leave out."""


class PlanRef(Message):
    """A pull plan; its text lies in the cache under ``plans/<digest>.json``."""

    digest: str
    files: int
    bytes: int
    weight_bytes: int = 0
    """Sum of the weight files alone; 0 = unknown."""
    online_quantization: bool = False
    """The weights are stored unquantized and the engine has to quantize them while it loads them."""
    shape: ModelShape = ModelShape()


class PullWeights(Message):
    """Pull what a plan lists."""

    ref: Ref
    storage_uri: str
    plan: PlanRef
    credentials: str = ""
    """Secret with access to the source; empty = the pool's own identity."""


class Tree(Message):
    """A published tree of weights; path in the cache: ``trees/<digest>``."""

    digest: str
    bytes: int
    proof: str
    """What verified the bytes: a word for people, such as ``sha256`` or ``transport only``."""
    online_quantization: bool = False
    """The engine has to quantize the weights while it loads them."""


class Join(Message):
    """Ask the line of a GPU class for room; a later join of the same workflow replaces its run ID."""

    ref: Ref
    workflow_id: str
    run_id: str
    uid: str
    release: str
    gpu_class: str
    resource_name: str
    node_selector: dict[str, str] = {}
    tolerations: list[Toleration] = []
    pods: int
    gpus_per_pod: int
    poll_seconds: float


class Leave(Message):
    """Give up place or lease; only the entry with this run ID goes."""

    workflow_id: str
    run_id: str
    gpu_class: str


class LeaseCount(Message):
    """A lease or the head of the line as the counting activity needs it."""

    workflow_id: str
    run_id: str
    namespace: str
    release: str
    pods: int
    gpus_per_pod: int
    resource_name: str
    node_selector: dict[str, str] = {}
    tolerations: list[Toleration] = []


class CountFree(Message):
    """Count what is free of a class. ``leases`` are granted, ``head`` is first in line (none = nobody)."""

    gpu_class: str
    leases: list[LeaseCount]
    head: LeaseCount | None


class Capacity(Message):
    """The answer of ``count-free``."""

    bound: dict[str, int]
    """Workflow ID -> pods of its release that are bound to a node."""
    closed: list[str]
    """Workflow IDs of leases whose run is no longer open."""
    free: int
    """Free GPUs of the class on usable nodes, live leases' unbound pods taken off."""
    head_fits: bool


class InstallRelease(Message):
    """Install a revision as a Helm release without traffic, sized to ``replicas``."""

    ref: Ref
    base: str
    release: str
    revision: str
    spec: Spec
    options: Options
    policy: Policy
    gpu_class: GpuClass
    tree: Tree
    replicas: int
    values_digest: str = ""
    """Digest of the extra values as they were checked; empty = there are none."""


class ReleaseRequest(Message):
    """A release by name. ``drain_seconds`` is waited before an uninstall of what carried traffic."""

    ref: Ref
    base: str
    release: str
    drain_seconds: int = 0


class AwaitRelease(Message):
    """Wait until ``replicas`` pods of the release are ready."""

    ref: Ref
    base: str
    release: str
    replicas: int
    policy: Policy


class ReadyPods(Message):
    """Ready pods of a release."""

    pods: int


class SizeRelease(Message):
    """Set the size of a release through the scale subresource."""

    ref: Ref
    base: str
    release: str
    replicas: int


class WatchCanary(Message):
    """Watch the canary's pods for ``seconds``."""

    ref: Ref
    base: str
    release: str
    seconds: int


class RunSmokeTest(Message):
    """Stream ``prompts`` completions to the release's own Service."""

    ref: Ref
    release: str
    url: str
    """Base URL of the revision Service."""
    model: str
    prompts: int
    ttft_budget_ms: int | None
    tpot_budget_ms: int | None
    wait_seconds: float


class SmokeReport(Message):
    """Numbers of a passed smoke test, in milliseconds; a failed one raises SmokeTestFailed."""

    prompts: int
    ttft_p50_ms: float
    ttft_p90_ms: float
    tpot_p50_ms: float | None = None
    tpot_p90_ms: float | None = None


class SetWeights(Message):
    """Route ``canary_percent`` of the requests to ``canary`` and the rest to ``stable``.

    ``stable`` none: the canary is the only destination. ``serving`` set: written in the same apply as the
    route's annotation; only Promoting does that, together with ``canary_percent`` 100.
    """

    ref: Ref
    base: str
    policy: Policy
    stable: str | None
    """Revision that serves."""
    canary: str
    """Revision under test."""
    canary_percent: int
    serving: str | None = None


class Weights(Message):
    """Revision -> weight, as read back."""

    weights: dict[str, int]


class WithdrawCanary(Message):
    """Route everything to ``stable`` alone, read back, then wait for the drain.

    ``stable`` none: nothing serves; the route goes and the front Service loses its selector.
    """

    ref: Ref
    base: str
    policy: Policy
    stable: str | None
    drain: bool = True
    """False when no canary destination was there to drain."""


class Settle(Message):
    """Point front Service and autoscaler at the serving revision and write the serving record."""

    ref: Ref
    base: str
    policy: Policy
    record: ServingRecord
    spec: Spec
    release_name: str


class AutoscalingState(Message):
    """What the condition AutoscalingReady says."""

    ready: bool
    reason: str
    message: str


class Settled(Message):
    """The endpoint, its EndpointSlice seen filled, and how its size follows the load."""

    endpoint: str
    autoscaling: AutoscalingState | None = None


class ReleaseName(Message):
    """Give the base name back: delete the front Service, if nothing serves."""

    ref: Ref
    base: str
