"""The one list of failures that plnt tells its users about.

Every class has a stable CamelCase reason, its own name, which opens ``status.lastError``, names the
event and labels the metric.

PlntError
    PermanentError    not retried: the same input fails again
    TransientError    retried by the step's policy, then treated as permanent with the same reason
"""

from datetime import timedelta

MAX_MESSAGE_CHARS = 2000
"""Longest message kept, in characters: error texts travel in Temporal payloads and in status."""


class PlntError(Exception):
    """A failure with a stable reason and one line for the user: what failed, for what, what to do."""

    retryable = False

    def __init__(self, message: str, *, after: timedelta | None = None) -> None:
        """Keep ``message``; ``after`` is the earliest time at which a retry makes sense."""
        super().__init__(" ".join(message.split())[:MAX_MESSAGE_CHARS])
        self.after = after

    @property
    def reason(self) -> str:
        """The stable CamelCase reason."""
        return type(self).__name__


class PermanentError(PlntError):
    """The same input fails again."""


class TransientError(PlntError):
    """May pass by itself."""

    retryable = True


class SpecInvalid(PermanentError):
    """The spec or an annotation asks for what plnt cannot honour; the message names the field."""


class UnsupportedCombination(PermanentError):
    """Runtime, quantization and checkpoint do not go together."""


class WeightsNotFound(PermanentError):
    """The source holds no such bucket, path or revision."""


class SourceChanged(PermanentError):
    """A file at the source was replaced or removed after the plan was made: a new run takes the new one."""


class AccessDenied(PermanentError):
    """The source or the API server refused the credentials."""


class DigestMismatch(PermanentError):
    """The bytes that came twice differ from the published digest."""


class InsufficientDisk(PermanentError):
    """The cache volume cannot hold the weights."""


class ChartInvalid(PermanentError):
    """Helm refused the chart or its values."""


class DeployFailed(PermanentError):
    """The pods of a release cannot become ready; the message holds the pod's own reason."""


class SmokeTestFailed(PermanentError):
    """A prompt failed or a budget was exceeded."""


class CanaryUnhealthy(PermanentError):
    """A canary pod lost readiness, restarted or ended while it carried traffic."""


class GpuClassUnknown(PermanentError):
    """No node offers the GPU class."""


class GpuQueueTimeout(PermanentError):
    """The queue deadline passed before the GPUs were free."""


class ApprovalTimeout(PermanentError):
    """The deadline passed before a person approved the promotion."""


class NameTaken(PermanentError):
    """Another WorkflowRun or a foreign object holds the base name."""


class NotFound(PermanentError):
    """The API server knows no such object, or no such kind."""


class Rejected(PermanentError):
    """The API server or an admission webhook refused the object."""


class StaleRun(PermanentError):
    """Another run of the workflow took over; this attempt must not change anything."""


class RollbackIncomplete(PermanentError):
    """An undo could not finish; the message says what is left."""


class NoCapacity(TransientError):
    """No room at the moment."""


class SourceUnavailable(TransientError):
    """The weights' source did not answer as it should."""


class ApiUnavailable(TransientError):
    """The Kubernetes API did not answer plnt or helm as it should."""


class TemporalUnavailable(TransientError):
    """Temporal did not answer an activity's question."""


class Conflict(TransientError):
    """The object changed meanwhile, or exists already."""


class Expired(TransientError):
    """The resourceVersion is too old: list again."""


class ReleaseBusy(TransientError):
    """Helm holds the release in a pending state."""


class EndpointNotReady(TransientError):
    """The model's endpoint does not answer yet."""


class SmokeTestInconclusive(TransientError):
    """The tester's own fault: its verdict says nothing about the model."""


class StepTimeout(TransientError):
    """A step passed its time limit without a reason of its own; the message names the step."""
