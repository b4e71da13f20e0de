"""Every setting of every process, read once from the environment in its ``__main__``.

The Temporal connection obeys the ``TEMPORAL_*`` variables of the official CLI, the Kubernetes connection
``KUBECONFIG`` or the pod's service account, tracing the standard ``OTEL_*``, S3 the standard ``AWS_*``.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, Json, ValidationError, model_validator

from plnt.model.desired import Policy


class SettingsInvalid(Exception):
    """One message that lists every wrong setting."""


def _split(value: object) -> object:
    return tuple(part.strip() for part in value.split(",") if part.strip()) if isinstance(value, str) else value


Names = Annotated[tuple[str, ...], BeforeValidator(_split)]


class Settings(BaseModel):
    """What every process has."""

    model_config = ConfigDict(frozen=True, extra="ignore", populate_by_name=True)

    log_level: str = Field("INFO", alias="PLNT_LOG_LEVEL", pattern="^(DEBUG|INFO|WARNING|ERROR)$")
    """Least severe level that is logged."""
    listen_host: str = Field("127.0.0.1", alias="PLNT_LISTEN_HOST")
    """Address of the health endpoints and of Temporal's metrics endpoint; in a pod, ``status.podIP``."""
    health_port: int = Field(0, alias="PLNT_HEALTH_PORT", ge=0, le=65535)
    """Port of ``/healthz``, ``/readyz``; 0 = none."""
    metrics_port: int = Field(0, alias="PLNT_METRICS_PORT", ge=0, le=65535)
    """Port of Prometheus metrics; 0 = none."""

    @classmethod
    def read(cls, environ: Mapping[str, str]) -> Self:
        """Read the settings.

        Raises:
            SettingsInvalid: some are wrong; the message lists all of them, one a line.
        """
        try:
            return cls.model_validate({key: value for key, value in environ.items() if value != ""})
        except ValidationError as error:
            raise SettingsInvalid(_faults(error)) from None


class BridgeSettings(Settings):
    """Settings of the bridge, the policy that it hands to workflows included."""

    namespaces: Names = Field((), alias="PLNT_NAMESPACES")
    """Namespaces to watch, separated by commas; empty = all."""
    resync_seconds: float = Field(600, alias="PLNT_RESYNC_SECONDS", gt=0)
    """Time between two full lists, in seconds."""
    watch_idle_seconds: float = Field(80, alias="PLNT_WATCH_IDLE_SECONDS", gt=0)
    """Longest silence on the watch before it is reopened; the API server sends a bookmark every 60 s."""
    provider: str = Field("istio", alias="PLNT_PROVIDER", pattern="^istio$")
    """Traffic provider; this version has ``istio``."""
    cluster_domain: str = Field("cluster.local", alias="PLNT_CLUSTER_DOMAIN")
    """DNS domain of the cluster."""
    bake_seconds: int = Field(300, alias="PLNT_BAKE_SECONDS", ge=0)
    """Time at trafficPercent before promotion, in seconds."""
    drain_seconds: int = Field(30, alias="PLNT_DRAIN_SECONDS", ge=0, le=600)
    """Time between the end of new requests to a release and its end, in seconds; a withdrawal has 15 minutes in all."""
    queue_deadline_seconds: int = Field(86_400, alias="PLNT_QUEUE_DEADLINE_SECONDS", ge=1)
    """Longest wait in the GPU line, in seconds."""
    approve_deadline_seconds: int = Field(86_400, alias="PLNT_APPROVE_DEADLINE_SECONDS", ge=1)
    """Longest wait for an approval that annotation plnt.work/approve asks for, in seconds."""
    gpu_poll_seconds: float = Field(5, alias="PLNT_GPU_POLL_SECONDS", gt=0)
    """Time between two counts of free GPUs while someone waits, in seconds; four times it when nothing changes."""
    smoke_wait_seconds: float = Field(30, alias="PLNT_SMOKE_WAIT_SECONDS", gt=0)
    """Longest wait for a ready canary's ``/v1/models`` before the smoke test, in seconds."""
    startup_budget_seconds: int = Field(1800, alias="PLNT_STARTUP_BUDGET_SECONDS", ge=10)
    """Longest start of a runtime, model load included, in seconds."""
    undo_deadline_seconds: int = Field(7200, alias="PLNT_UNDO_DEADLINE_SECONDS", ge=10)
    """Longest time that one undo step is retried, in seconds."""
    janitor_seconds: float = Field(600, alias="PLNT_JANITOR_SECONDS", ge=1)
    """Time between two rounds of the janitor, in seconds."""
    rate_window_seconds: int | None = Field(None, alias="PLNT_RATE_WINDOW_SECONDS", ge=2)
    """Window of the rates in the recording rules, in seconds; none = the chart's own for the runtime."""
    waiting_target: int = Field(4, alias="PLNT_WAITING_TARGET", ge=1)
    """Requests waiting in a pod's queue, on average, above which the autoscaler adds pods."""
    scale_pace_seconds: int = Field(60, alias="PLNT_SCALE_PACE_SECONDS", ge=1, le=1800)
    """Least time between two pods that the autoscaler adds or takes away, in seconds."""
    scale_down_seconds: int = Field(600, alias="PLNT_SCALE_DOWN_SECONDS", ge=0, le=3600)
    """Time that the load has to stay low before the autoscaler takes a pod away, in seconds."""
    scale_to_zero_seconds: int = Field(300, alias="PLNT_SCALE_TO_ZERO_SECONDS", ge=0)
    """Time without a request before KEDA takes the last pod away, in seconds."""
    prometheus_url: str = Field("", alias="PLNT_PROMETHEUS_URL", pattern="^(https?://.+)?$")
    """Prometheus that KEDA asks for the load; empty = no model goes to zero pods."""

    @property
    def policy(self) -> Policy:
        """What of this steers workflows."""
        return Policy.model_validate(self.model_dump(include=set(Policy.model_fields)))


class ControlSettings(Settings):
    """Settings of the workflow worker."""

    workflow_slots: int = Field(100, alias="PLNT_WORKFLOW_SLOTS", ge=2)
    """Workflow tasks at once."""
    worker_deployment: str = Field("", alias="PLNT_WORKER_DEPLOYMENT", pattern=r"^[^.]*$")
    """Name of the Temporal Worker Deployment that this worker belongs to; empty = no worker versioning."""
    worker_build: str = Field("", alias="PLNT_WORKER_BUILD")
    """Build ID of this worker in its deployment."""

    @model_validator(mode="after")
    def _check_versioning(self) -> Self:
        if bool(self.worker_deployment) != bool(self.worker_build):
            raise ValueError("PLNT_WORKER_DEPLOYMENT and PLNT_WORKER_BUILD go together: set both, or neither")
        return self


class PoolSettings(Settings):
    """Settings of the activity pools; each pool reads its own part."""

    slots: int | None = Field(None, alias="PLNT_SLOTS", ge=1)
    """Activities at once; the default is the pool's own."""
    gpu_classes: Json[dict[str, dict[str, Any]]] = Field({}, alias="PLNT_GPU_CLASSES", validate_default=False)
    """JSON map of gpuClass to ``{resourceName, nodeSelector, tolerations}``, before nodes are looked at."""
    gpu_memory_gib: Json[dict[str, Annotated[float, Field(gt=0)]]] = Field(
        {}, alias="PLNT_GPU_MEMORY_GIB", validate_default=False
    )
    """JSON map of gpuClass to the memory of one GPU in GiB, where nodes are not labelled with it."""
    cache_dir: Path = Field(Path("/var/lib/plnt/cache"), alias="PLNT_CACHE_DIR")
    """The weights cache as the weights pool sees it."""
    cache_max_bytes: int | None = Field(None, alias="PLNT_CACHE_MAX_BYTES", ge=1)
    """Upper bound of the cache, in bytes; none = the volume's size."""
    cache_keep_seconds: float = Field(604_800, alias="PLNT_CACHE_KEEP_SECONDS", ge=0)
    """Time for which a tree that nothing uses stays in the cache, in seconds."""
    cache_high_water_percent: int = Field(85, alias="PLNT_CACHE_HIGH_WATER_PERCENT", ge=1, le=100)
    """Use of the cache above which trees that nothing uses are collected whatever their age."""
    cache_volume: Json[dict[str, Any]] = Field(
        {"persistentVolumeClaim": {"claimName": "plnt-weights"}}, alias="PLNT_CACHE_VOLUME", validate_default=False
    )
    """Kubernetes volume source of the weights cache, as JSON, mounted by runtime pods."""
    pull_connections: int = Field(16, alias="PLNT_PULL_CONNECTIONS", ge=1, le=64)
    """Most connections at work at once in all pulls of a worker; a pull begins with four."""
    pull_bytes_per_second: int | None = Field(None, alias="PLNT_PULL_BYTES_PER_SECOND", ge=1)
    """Upper bound of this worker's download rate, in bytes per second; none = no bound."""
    private_hosts: Names = Field((), alias="PLNT_WEIGHTS_PRIVATE_HOSTS")
    """``host:port`` on private or loopback addresses from which weights may be pulled, separated by commas."""
    gs_endpoint: str = Field("", alias="STORAGE_EMULATOR_HOST")
    """Endpoint of ``gs://`` sources in place of Google's; it is spoken to without credentials."""
    hf_endpoint: str = Field("https://huggingface.co", alias="HF_ENDPOINT", pattern="^https?://.+$")
    """The Hugging Face Hub, or a mirror of it."""
    hf_token: str = Field("", alias="HF_TOKEN", repr=False)
    """The pool's own token of the Hub, where no Secret is named."""
    oci_mirrors: Json[dict[str, str]] = Field({}, alias="PLNT_OCI_MIRRORS", validate_default=False)
    """JSON map of a registry's host to the URL of its mirror, such as ``{"docker.io": "https://mirror.example"}``."""
    charts_dir: Path | None = Field(None, alias="PLNT_CHARTS_DIR")
    """Folder of ``<runtime>-runtime`` charts; none = those that came with plnt."""


def _faults(error: ValidationError) -> str:
    return "\n".join(f"{'.'.join(map(str, fault['loc']))}: {fault['msg']}" for fault in error.errors())
