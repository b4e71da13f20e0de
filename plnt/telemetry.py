"""Logs as JSON lines, metrics of the Temporal runtime, traces by the standard ``OTEL_*`` variables."""

import json
import logging
import os
import sys
import time
from typing import Any, NoReturn

from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from temporalio.client import Plugin
from temporalio.contrib.opentelemetry import OpenTelemetryPlugin, create_tracer_provider
from temporalio.runtime import PrometheusConfig, Runtime, TelemetryConfig

from plnt.settings import Settings

_BUILT_IN = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}
_NESTED = ("temporal_workflow", "temporal_activity")
_QUIET = {
    "pyhelm3": logging.ERROR,
    "aiohttp.access": logging.WARNING,
    "botocore": logging.WARNING,
    "aiobotocore": logging.WARNING,
}


class JsonFormatter(logging.Formatter):
    """One JSON object a line: time, level, logger, message, and the record's extra fields."""

    def format(self, record: logging.LogRecord) -> str:
        """Give the line."""
        fields: dict[str, Any] = {
            "time": time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created)) + f".{int(record.msecs):03d}Z",
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        for key, value in vars(record).items():
            if key in _NESTED and isinstance(value, dict):
                fields.update(
                    {name: value[name] for name in ("workflow_id", "run_id", "activity_id", "attempt") if name in value}
                )
            elif key not in _BUILT_IN and not key.startswith("__"):
                fields[key] = value
        if record.exc_info:
            fields["exception"] = self.formatException(record.exc_info)
        return json.dumps(fields, default=str)


def start_logging(settings: Settings) -> None:
    """Send every logger's records to standard error."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter())
    logging.basicConfig(level=settings.log_level, handlers=[handler], force=True)
    for name, level in _QUIET.items():
        logging.getLogger(name).setLevel(level)


def start_runtime(settings: Settings) -> Runtime:
    """Give the process's one Temporal runtime, with a Prometheus endpoint if a port is set."""
    metrics = None
    if settings.metrics_port:
        metrics = PrometheusConfig(
            bind_address=f"{settings.listen_host}:{settings.metrics_port}",
            counters_total_suffix=True,
            unit_suffix=True,
            durations_as_seconds=True,
        )
    return Runtime(telemetry=TelemetryConfig(metrics=metrics))


def start_tracing() -> tuple[Plugin, ...]:
    """Give the Temporal plugins that trace, if ``OTEL_EXPORTER_OTLP_ENDPOINT`` names a receiver."""
    if not (os.environ.get("OTEL_EXPORTER_OTLP_ENDPOINT") or os.environ.get("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")):
        return ()
    provider = create_tracer_provider()
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    trace.set_tracer_provider(provider)
    return (OpenTelemetryPlugin(add_temporal_spans=True),)


def end_process(status: int) -> NoReturn:
    """Send what is left to be sent and end the process at once.

    Threads of the Temporal SDK may still call into Python; an interpreter that is being torn down aborts then, and an
    orderly stop would look like a crash to whoever supervises the process.
    """
    shutdown = getattr(trace.get_tracer_provider(), "shutdown", None)
    if shutdown is not None:
        shutdown()
    logging.shutdown()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)
