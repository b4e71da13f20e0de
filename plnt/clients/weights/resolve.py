"""Turns a source into a plan: which files, pinned, and whether the checkpoint is what the spec says."""

import asyncio
from collections.abc import Iterable
from typing import Any

from plnt.clients.weights.source import Source
from plnt.model import weight_files
from plnt.model.checkpoint import check_checkpoint, read_checkpoint
from plnt.model.pull_plan import PlannedFile, PullPlan, check_names, check_total
from plnt.model.weight_files import parse_json_object
from plnt.model.workflow_run import Quantization, Runtime

REQUESTS = 16
"""Objects asked about at once."""


async def resolve_plan(source: Source, runtime: Runtime, quantization: Quantization) -> PullPlan:
    """Give the plan of a source.

    Raises:
        PlntError: it holds no model that the runtime can serve as the spec says.
    """
    sizes = await source.list_files()
    check_names(list(sizes), source.where)
    side = weight_files.choose_side_files(sizes)
    weight_files.check_side_files(side, source.where)
    index = await _read_index(source, side)
    weights = weight_files.choose_weights(sizes, index, source.where)
    files = await _pin(source, sorted({*side, *weights}))
    check_total(files, source.where)
    await _check_small_weights(source, [file for file in files if file.path in weights])
    await _check_checkpoint(source, files, runtime, quantization)
    return PullPlan(source=source.where, files=files)


async def _read_index(source: Source, side: Iterable[str]) -> dict[str, Any] | None:
    if weight_files.INDEX not in side:
        return None
    return await _read_json(source, await source.pin_file(weight_files.INDEX))


async def _pin(source: Source, paths: list[str]) -> list[PlannedFile]:
    gate = asyncio.Semaphore(REQUESTS)

    async def pin(path: str) -> PlannedFile:
        async with gate:
            return await source.pin_file(path)

    # Not a task group: its exception group would hide the reason from the activity's boundary.
    tasks = [asyncio.create_task(pin(path)) for path in paths]
    try:
        return list(await asyncio.gather(*tasks))
    finally:
        for task in tasks:
            task.cancel()


async def _check_small_weights(source: Source, weights: Iterable[PlannedFile]) -> None:
    for file in weights:
        if file.size <= weight_files.MAX_POINTER_BYTES:
            data = await source.read_file(file)
            weight_files.check_first_bytes(data, file.path, source.where)


async def _check_checkpoint(
    source: Source, files: Iterable[PlannedFile], runtime: Runtime, quantization: Quantization
) -> None:
    pinned = {file.path: file for file in files}
    config = await _read_json(source, pinned[weight_files.CONFIG])
    side = {name: await _read_json(source, pinned[name]) for name in weight_files.QUANTIZATION_FILES if name in pinned}
    check_checkpoint(runtime, quantization, read_checkpoint(config, side), source.where)


async def _read_json(source: Source, file: PlannedFile) -> dict[str, Any]:
    return parse_json_object(await source.read_file(file), file.path, source.where)
