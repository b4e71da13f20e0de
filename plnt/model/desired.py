"""What a run reads of its WorkflowRun, and the settings that steer it."""

from plnt.model.message import Message
from plnt.model.options import Options
from plnt.model.workflow_run import Spec


class Ref(Message):
    """A WorkflowRun by namespace and name."""

    namespace: str
    name: str


class Policy(Message):
    """Settings of the installation that steer a workflow; workflow code reads no environment."""

    provider: str = "istio"
    cluster_domain: str = "cluster.local"
    bake_seconds: int = 300
    drain_seconds: int = 30
    """Time between weight 0 read back and the end of a release, for propagation and streams in flight."""
    queue_deadline_seconds: int = 86_400
    gpu_poll_seconds: float = 5.0
    approve_deadline_seconds: int = 86_400
    """Longest wait for an approval that the WorkflowRun asks for; then the canary is rolled back."""
    smoke_wait_seconds: float = 30.0
    """Longest wait for ``/v1/models`` to answer through the revision Service."""
    startup_budget_seconds: int = 1800
    """Longest time from a scheduled pod to a ready one."""
    undo_deadline_seconds: int = 7200
    """Bound of one undo step, retries included."""
    rate_window_seconds: int | None = None
    """Window of the recording rules; none = the chart's own for the runtime."""
    waiting_target: int = 4
    """Requests waiting in a pod's queue, on average, above which the autoscaler adds pods."""
    scale_pace_seconds: int = 60
    """Least time between two pods that the autoscaler adds or takes away."""
    scale_down_seconds: int = 600
    """Time that the load has to stay low before the autoscaler takes a pod away: a model loads slowly."""
    scale_to_zero_seconds: int = 300
    """Time without a request before KEDA takes the last pod away."""
    prometheus_url: str = ""
    """Where KEDA asks for the load; empty = no model goes to zero pods."""


class Desired(Message):
    """A WorkflowRun as its run reads it."""

    uid: str
    generation: int
    identity: str
    """Digest of (uid, generation, options digest, deleting)."""
    options_digest: str
    deleting: bool
    spec: Spec
    options: Options
    policy: Policy
    faults: list[str] = []
    """What in the annotations or the spec could not be read; not empty = refused in Validating."""

    @property
    def needs_approval(self) -> bool:
        """Whether a person has yet to approve the promotion of this generation."""
        approve = self.options.approve
        return approve is not None and approve != str(self.generation)


class Loaded(Message):
    """The answer of ``load-desired``: the WorkflowRun, or none when it is gone.

    ``policy`` stands here too, for taking down what a WorkflowRun left that is gone.
    """

    desired: Desired | None = None
    policy: Policy = Policy()


def identity_of(uid: str, generation: int, options_digest: str, deleting: bool) -> str:  # noqa: FBT001
    """Give the identity that the bridge pokes once for and that a run notes in its memo."""
    return f"{uid}/{generation}/{options_digest}/{'deleting' if deleting else 'live'}"
