"""An engine's Prometheus metrics under its own names: live for vLLM, at a request's end where the real one waits."""

import bisect
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from plnt.sandbox.engine.command_line import Engine

_SECONDS = (0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0)
_TOKENS = (1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1000.0)


@dataclass(slots=True)
class Histogram:
    """Counts by upper bound."""

    bounds: tuple[float, ...] = _SECONDS
    counts: Counter[int] = field(default_factory=Counter)
    total: float = 0.0

    def observe(self, value: float) -> None:
        """Count one value."""
        self.counts[bisect.bisect_left(self.bounds, value)] += 1
        self.total += value

    def lines(self, name: str, labels: str) -> Iterator[str]:
        """Render the histogram as exposition lines."""
        so_far = 0
        comma = "," if labels else ""
        for position, bound in enumerate((*self.bounds, float("inf"))):
            so_far += self.counts[position]
            edge = "+Inf" if bound == float("inf") else f"{bound:g}"
            yield f'{name}_bucket{{{labels}{comma}le="{edge}"}} {so_far}'
        yield f"{name}_sum{{{labels}}} {self.total:g}"
        yield f"{name}_count{{{labels}}} {so_far}"


@dataclass(slots=True)
class Meter:
    """What one engine has done so far."""

    running: int = 0
    prompt_tokens: int = 0
    decoded_tokens: int = 0
    """Grows with every token."""
    finished_tokens: int = 0
    """Grows at a request's end."""
    finished: Counter[str] = field(default_factory=Counter)
    """Requests by finish reason."""
    first_token: Histogram = field(default_factory=Histogram)
    per_token: Histogram = field(default_factory=Histogram)
    """Mean time per output token after the first, per request."""
    between_tokens: Histogram = field(default_factory=Histogram)
    whole_request: Histogram = field(default_factory=Histogram)
    generated: Histogram = field(default_factory=lambda: Histogram(_TOKENS))
    """Tokens per request."""

    def finish(self, reason: str, tokens: int, seconds: float, decode_seconds: float) -> None:
        """Count one request's end."""
        self.finished[reason] += 1
        self.finished_tokens += tokens
        self.generated.observe(tokens)
        self.whole_request.observe(seconds)
        if tokens > 1:
            self.per_token.observe(decode_seconds / (tokens - 1))


def render_metrics(engine: Engine, meter: Meter, model: str) -> str:
    """Render everything that the engine would show."""
    lines = {
        Engine.VLLM: _vllm_lines,
        Engine.SGLANG: _sglang_lines,
        Engine.TGI: _tgi_lines,
        Engine.TRTLLM: _trtllm_lines,
    }[engine](meter, model)
    return "\n".join(lines) + "\n"


def _vllm_lines(meter: Meter, model: str) -> Iterator[str]:
    labels = f'engine="0",model_name="{model}"'
    yield from _series("vllm:num_requests_running", "gauge", labels, meter.running)
    yield from _series("vllm:num_requests_waiting", "gauge", labels, 0)
    yield from _series("vllm:kv_cache_usage_perc", "gauge", labels, min(1.0, meter.running / 256))
    yield from _series("vllm:prompt_tokens_total", "counter", labels, meter.prompt_tokens)
    yield from _series("vllm:generation_tokens_total", "counter", labels, meter.decoded_tokens)
    yield "# TYPE vllm:request_success_total counter"
    for reason in ("stop", "length", "abort"):
        yield f'vllm:request_success_total{{{labels},finished_reason="{reason}"}} {meter.finished[reason]}'
    yield from _histogram("vllm:time_to_first_token_seconds", labels, meter.first_token)
    yield from _histogram("vllm:inter_token_latency_seconds", labels, meter.between_tokens)
    yield from _histogram("vllm:request_time_per_output_token_seconds", labels, meter.per_token)
    yield from _histogram("vllm:e2e_request_latency_seconds", labels, meter.whole_request)
    yield from _histogram("vllm:request_generation_tokens", labels, meter.generated)


def _sglang_lines(meter: Meter, model: str) -> Iterator[str]:
    labels = f'engine_type="unified",model_name="{model}",pp_rank="0",tp_rank="0"'
    yield from _series("sglang:num_running_reqs", "gauge", labels, meter.running)
    yield from _series("sglang:num_queue_reqs", "gauge", labels, 0)
    yield from _series("sglang:token_usage", "gauge", labels, min(1.0, meter.running / 256))
    if meter.decoded_tokens:
        yield from _series("sglang:realtime_tokens_total", "counter", labels + ',mode="decode"', meter.decoded_tokens)
    if meter.finished:
        yield from _series("sglang:prompt_tokens_total", "counter", labels, meter.prompt_tokens)
        yield from _series("sglang:generation_tokens_total", "counter", labels, meter.finished_tokens)
        yield from _histogram("sglang:time_to_first_token_seconds", labels, meter.first_token)
        yield from _histogram("sglang:inter_token_latency_seconds", labels, meter.between_tokens)
        yield from _histogram("sglang:request_time_per_output_token_seconds", labels, meter.per_token)
        yield from _histogram("sglang:e2e_request_latency_seconds", labels, meter.whole_request)


def _tgi_lines(meter: Meter, _: str) -> Iterator[str]:
    yield from _series("tgi_batch_current_size", "gauge", "", meter.running)
    yield from _series("tgi_queue_size", "gauge", "", 0)
    if meter.finished:
        requests = sum(meter.finished.values())
        yield from _series("tgi_request_count", "counter", "", requests)
        yield from _series("tgi_request_success", "counter", "", requests - meter.finished["abort"])
        yield from _histogram("tgi_request_generated_tokens", "", meter.generated)
        yield from _histogram("tgi_request_mean_time_per_token_duration", "", meter.per_token)
        yield from _histogram("tgi_request_duration", "", meter.whole_request)


def _trtllm_lines(meter: Meter, model: str) -> Iterator[str]:
    labels = f'engine_type="pytorch",model_name="{model}"'
    yield from _series("trtllm_num_requests_running", "gauge", labels, meter.running)
    yield from _series("trtllm_num_requests_waiting", "gauge", labels, 0)
    yield from _series("trtllm_kv_cache_utilization", "gauge", labels, min(1.0, meter.running / 256))
    if meter.finished:
        yield from _series("trtllm_prompt_tokens_total", "counter", labels, meter.prompt_tokens)
        yield from _series("trtllm_generation_tokens_total", "counter", labels, meter.finished_tokens)
        yield "# TYPE trtllm_request_success_total counter"
        for reason, count in sorted(meter.finished.items()):
            yield f'trtllm_request_success_total{{{labels},finished_reason="{reason}"}} {count}'
        yield from _histogram("trtllm_time_to_first_token_seconds", labels, meter.first_token)
        yield from _histogram("trtllm_time_per_output_token_seconds", labels, meter.per_token)
        yield from _histogram("trtllm_e2e_request_latency_seconds", labels, meter.whole_request)


def _series(name: str, kind: str, labels: str, value: float) -> Iterator[str]:
    yield f"# TYPE {name} {kind}"
    yield f"{name}{{{labels}}} {value:g}" if isinstance(value, float) else f"{name}{{{labels}}} {value}"


def _histogram(name: str, labels: str, histogram: Histogram) -> Iterator[str]:
    yield f"# TYPE {name} histogram"
    yield from histogram.lines(name, labels)
