"""What an engine was told: model, names, address, limits."""

import ipaddress
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from plnt.sandbox.engine.command_line import CommandLine, Engine, UsageInvalid


@dataclass(frozen=True, slots=True)
class Launch:
    """One engine as its command line describes it."""

    engine: Engine
    model: Path
    shown_model: str
    """The model's path as the container sees it."""
    names: tuple[str, ...]
    """Served names; metrics use the first."""
    host: str
    port: int
    tensor_parallel: int
    api_key: str | None
    quantization: str | None
    max_length: int | None
    """Longest context, in tokens; none = as the model's configuration says."""
    drain_seconds: float | None
    """How long requests in flight may go on after SIGTERM; none = without limit."""
    metrics: bool
    """Whether the Prometheus endpoint was asked for (always on in vLLM and TGI)."""


_DEFAULT_PORTS = {Engine.VLLM: 8000, Engine.SGLANG: 30000, Engine.TGI: 3000, Engine.TRTLLM: 8000}
_TGI_TERMINATION_SECONDS = 90.0
"""The launcher's default of GRACEFUL_TERMINATION_TIMEOUT."""


def read_launch(line: CommandLine, environ: Mapping[str, str]) -> Launch:
    """Read what the command line says.

    Raises:
        UsageInvalid: no model, a number that is none, or two flags that exclude each other.
    """
    model = _find_model(line)
    shown = show_path(model, environ)
    if line.engine is Engine.TGI and line.find("--dtype") and line.find("--quantize"):
        raise UsageInvalid("error: the argument '--dtype' cannot be used with '--quantize'")
    return Launch(
        engine=line.engine,
        model=Path(model),
        shown_model=shown,
        names=_find_names(line, shown),
        host=_find_host(line, environ),
        port=_read_number(line, _DEFAULT_PORTS[line.engine], "--port"),
        tensor_parallel=_read_number(line, 1, "--tensor-parallel-size", "-tp", "--tp-size", "--tp_size", "--num-shard"),
        api_key=line.find("--api-key") or (environ.get("VLLM_API_KEY") if line.engine is Engine.VLLM else None),
        quantization=line.find("--quantization", "-q", "--quantize"),
        max_length=_find_max_length(line),
        drain_seconds=_find_drain(line, environ),
        metrics=_wants_metrics(line),
    )


def show_path(path: str, environ: Mapping[str, str]) -> str:
    """Give ``path`` as the container sees it."""
    mounts: dict[str, str] = json.loads(environ.get("PLNT_STUB_MOUNTS") or "{}")
    for folder in sorted(mounts, key=len, reverse=True):
        if path == folder or path.startswith(folder + "/"):
            return mounts[folder] + path[len(folder) :]
    return path


def _find_model(line: CommandLine) -> str:
    given = line.positionals[0] if line.positionals else line.find("--model", "--model-path", "--model-id")
    if not given:
        raise UsageInvalid("error: the following arguments are required: model")
    return given


def _find_names(line: CommandLine, shown: str) -> tuple[str, ...]:
    """Give the served names; unless told, trtllm-serve takes the last part of the path. TGI cannot be told."""
    if line.engine is Engine.TGI:
        return (shown,)
    if line.engine is Engine.TRTLLM:
        return line.options.get("--served_model_name") or (PurePosixPath(shown).name,)
    return line.options.get("--served-model-name") or (shown,)


def _find_host(line: CommandLine, environ: Mapping[str, str]) -> str:
    """Choose the address to bind: the pod's own for all interfaces, the loopback that others cannot reach otherwise.

    SGLang and trtllm-serve bind the loopback address unless told; TGI takes anything that is no address as "all".
    """
    pod = environ.get("PLNT_STUB_LISTEN") or "127.0.0.1"
    told = line.find("--host", "--hostname")
    if line.engine is Engine.TGI and not _is_address(told):
        told = None
    if told is None:
        return pod if line.engine in {Engine.VLLM, Engine.TGI} else "localhost"
    return "localhost" if told in {"127.0.0.1", "localhost", "::1"} else pod


def _is_address(text: str | None) -> bool:
    try:
        ipaddress.ip_address(text or "")
    except ValueError:
        return False
    return True


def _find_max_length(line: CommandLine) -> int | None:
    flags = ("--max-model-len", "--context-length", "--max-total-tokens", "--max_seq_len")
    given = line.find(*flags)
    return None if given in {None, "auto", "-1"} else _read_number(line, 0, *flags)


def _find_drain(line: CommandLine, environ: Mapping[str, str]) -> float | None:
    match line.engine:
        case Engine.VLLM:
            return float(_read_number(line, 0, "--shutdown-timeout"))
        case Engine.TGI:
            return float(environ.get("GRACEFUL_TERMINATION_TIMEOUT") or _TGI_TERMINATION_SECONDS)
        case _:
            return None


def _wants_metrics(line: CommandLine) -> bool:
    match line.engine:
        case Engine.SGLANG:
            return line.has("--enable-metrics")
        case Engine.TRTLLM:
            extra = line.find("--extra_llm_api_options", "--config")
            return bool(extra) and "return_perf_metrics: true" in _read_text(Path(extra or ""))
        case _:
            return True


def _read_text(path: Path) -> str:
    try:
        return path.read_text()
    except OSError as error:
        raise UsageInvalid(f"Error: Invalid value for '--extra_llm_api_options': {error}") from None


def _read_number(line: CommandLine, default: int, *flags: str) -> int:
    given = line.find(*flags)
    if given is None:
        return default
    if not given.isdecimal():
        raise UsageInvalid(f"error: argument {flags[0]}: invalid int value: {given!r}")
    return int(given)
