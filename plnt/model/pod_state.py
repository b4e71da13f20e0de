"""Deployments, ReplicaSets and pods as far as plnt judges them; parsed from the API server's JSON."""

from datetime import datetime
from typing import Self

from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

_REVISION = "deployment.kubernetes.io/revision"


class Seen(BaseModel):
    """A part of an object as the API server shows it: frozen, camelCase outside, unknown fields dropped."""

    model_config = ConfigDict(frozen=True, extra="ignore", alias_generator=to_camel, populate_by_name=True)


class Owner(Seen):
    """An owner reference."""

    uid: str


class Meta(Seen):
    """Metadata."""

    name: str
    uid: str = ""
    generation: int = 0
    annotations: dict[str, str] = {}
    labels: dict[str, str] = {}
    owner_references: list[Owner] = []
    creation_timestamp: datetime | None = None
    deletion_timestamp: datetime | None = None

    def is_owned_by(self, uid: str) -> bool:
        """Say whether an owner reference names ``uid``."""
        return any(owner.uid == uid for owner in self.owner_references)


class Condition(Seen):
    """A condition of any of the three kinds."""

    type: str
    status: str
    reason: str = ""
    message: str = ""
    last_update_time: datetime | None = None
    last_transition_time: datetime | None = None


class Waiting(Seen):
    """A container that does not run."""

    reason: str = ""
    message: str = ""


class Terminated(Seen):
    """A container that ended."""

    exit_code: int = 0
    reason: str = ""
    message: str = ""


class ContainerState(Seen):
    """One of the states, or none."""

    waiting: Waiting | None = None
    terminated: Terminated | None = None


class Container(Seen):
    """A container's status."""

    name: str
    ready: bool = False
    restart_count: int = 0
    state: ContainerState = ContainerState()
    last_state: ContainerState = ContainerState()

    @property
    def ended(self) -> Terminated | None:
        """How it ended last; none = it never did."""
        return self.state.terminated or self.last_state.terminated


class PodStatus(Seen):
    """A pod's status."""

    phase: str = "Pending"
    reason: str = ""
    message: str = ""
    nominated_node_name: str = ""
    conditions: list[Condition] = []
    container_statuses: list[Container] = []


class Pod(Seen):
    """A pod."""

    metadata: Meta
    status: PodStatus = PodStatus()

    @property
    def is_ready(self) -> bool:
        """Whether it takes requests."""
        ready = self.find_condition("Ready")
        return ready is not None and ready.status == "True" and self.metadata.deletion_timestamp is None

    @property
    def restarts(self) -> int:
        """Restarts of all its containers."""
        return sum(container.restart_count for container in self.status.container_statuses)

    def find_condition(self, kind: str) -> Condition | None:
        """Give the condition of that type."""
        return next((condition for condition in self.status.conditions if condition.type == kind), None)


class SetStatus(Seen):
    """A ReplicaSet's status."""

    conditions: list[Condition] = []


class ReplicaSet(Seen):
    """A ReplicaSet."""

    metadata: Meta
    status: SetStatus = SetStatus()

    @property
    def revision(self) -> int:
        """Its number among the Deployment's ReplicaSets; the newest has the highest."""
        return int(self.metadata.annotations.get(_REVISION, "0"))


class DeploymentSpec(Seen):
    """A Deployment's spec."""

    replicas: int = 1
    paused: bool = False


class DeploymentStatus(Seen):
    """A Deployment's status."""

    observed_generation: int = 0
    ready_replicas: int = 0
    conditions: list[Condition] = []


class Deployment(Seen):
    """A Deployment."""

    metadata: Meta
    spec: DeploymentSpec = DeploymentSpec()
    status: DeploymentStatus = DeploymentStatus()


class ReleasePods(Seen):
    """What of a release was read at one time."""

    deployment: Deployment | None
    replica_sets: list[ReplicaSet] = Field(default_factory=list)
    pods: list[Pod] = Field(default_factory=list)

    @classmethod
    def parse(cls, deployment: object, replica_sets: object, pods: object) -> Self:
        """Parse the API server's objects."""
        return cls.model_validate({"deployment": deployment, "replica_sets": replica_sets, "pods": pods})

    @property
    def newest_set(self) -> ReplicaSet | None:
        """The Deployment's newest ReplicaSet."""
        if self.deployment is None:
            return None
        uid = self.deployment.metadata.uid
        owned = [one for one in self.replica_sets if one.metadata.is_owned_by(uid)]
        return max(owned, key=lambda one: one.revision, default=None)
