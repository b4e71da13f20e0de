"""Runs one stub engine from its start to its end, with the exit codes of the real ones."""

import asyncio
import json
import os
import sys
import time
from collections.abc import Sequence
from typing import Any

from plnt.sandbox.engine.behaviour import Behaviour, BehaviourInvalid, read_behaviour
from plnt.sandbox.engine.command_line import Engine, UsageInvalid, parse_options, recognise
from plnt.sandbox.engine.launch import Launch, read_launch
from plnt.sandbox.engine.model_folder import ModelInvalid, check_folder, check_quantization, check_trtllm_format

_NOT_FOUND = 127
_DEFAULT_LENGTH = 8192
"""Longest context in tokens of a model whose configuration does not say it."""


def main(command: Sequence[str]) -> int:
    """Play the engine that ``command`` starts; gives the exit code."""
    found = recognise(command)
    if found is None:
        print(f"exec: {command[0] if command else ''!r}: no known engine", file=sys.stderr)
        return _NOT_FOUND
    try:
        launch = read_launch(parse_options(*found, os.environ), os.environ)
    except UsageInvalid as error:
        print(error, file=sys.stderr)
        return 2
    try:
        config = _check(launch)
        behaviour = read_behaviour(launch.model)
    except (ModelInvalid, BehaviourInvalid) as error:
        print(f"{type(error).__name__}: {error}".replace(str(launch.model), launch.shown_model), file=sys.stderr)
        return 1
    return _load_and_serve(launch, behaviour, config)


def _check(launch: Launch) -> dict[str, Any]:
    gpus = int(os.environ.get("PLNT_STUB_GPUS") or launch.tensor_parallel)
    if launch.tensor_parallel > gpus:
        raise ModelInvalid(f"tensor parallel size {launch.tensor_parallel} is larger than the {gpus} available GPUs")
    config = check_folder(launch.model)
    if launch.engine in {Engine.VLLM, Engine.SGLANG}:
        check_quantization(config, launch.quantization)
    if launch.engine is Engine.TRTLLM:
        check_trtllm_format(config)
    return config


def _load_and_serve(launch: Launch, behaviour: Behaviour, config: dict[str, Any]) -> int:
    print(f"INFO {launch.engine} loading {launch.shown_model} on {launch.tensor_parallel} GPU(s)", flush=True)
    ready_at = time.monotonic() + behaviour.load_seconds
    from plnt.sandbox.engine import life  # noqa: PLC0415  (aiohttp loads while the model does)

    time.sleep(max(0.0, ready_at - time.monotonic()))
    faults = behaviour.faults
    crashes_later = faults.crash_after_requests is not None or faults.crash_after_seconds is not None
    if faults.exit_code is not None and not crashes_later:
        print(f"ERROR engine core initialization failed, exit code {faults.exit_code}", file=sys.stderr)
        return faults.exit_code
    _record_load(launch)
    length = launch.max_length or int(config.get("max_position_embeddings") or _DEFAULT_LENGTH)
    pod = os.environ.get("POD_NAME") or os.environ.get("HOSTNAME", "")
    return asyncio.run(life.serve(launch, behaviour, length, pod))


def _record_load(launch: Launch) -> None:
    print(f"INFO model loaded: {launch.names[0]}", flush=True)
    loads = os.environ.get("PLNT_STUB_LOADS")
    if loads:
        entry = {"pod": os.environ.get("POD_NAME", ""), "model": launch.names[0], "at": time.time()}
        with open(loads, "a") as file:  # noqa: PTH123
            file.write(json.dumps(entry) + "\n")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
