"""Turns a source into a plan: which files, pinned, and whether the checkpoint is what the spec says."""

import asyncio
from collections.abc import Iterable
from typing import Any

from plnt.clients.weights.source import Source
from plnt.model import weight_files
from plnt.model.checkpoint import Checkpoint, check_checkpoint, needs_quantizing, read_checkpoint
from plnt.model.file_choice import Choice, Globs, choose_files, drop_excluded, is_weights
from plnt.model.message import Message
from plnt.model.model_shape import ModelShape, read_shape
from plnt.model.pull_plan import PlannedFile, PullPlan, check_names, check_total
from plnt.model.weight_files import parse_json_object
from plnt.model.workflow_run import Quantization, Runtime

REQUESTS = 16
"""Objects asked about at once."""


class Resolved(Message):
    """A plan, and what the checkpoint's own files say about serving it."""

    plan: PullPlan
    weight_bytes: int
    """Sum of the weight files alone."""
    online_quantization: bool
    """The engine has to quantize the weights while it loads them."""
    shape: ModelShape


async def resolve_plan(
    source: Source, runtime: Runtime, quantization: Quantization, globs: Globs | None = None
) -> PullPlan:
    """Give the plan of a source; see `resolve`."""
    return (await resolve(source, runtime, quantization, globs)).plan


async def resolve(source: Source, runtime: Runtime, quantization: Quantization, globs: Globs | None = None) -> Resolved:
    """Give the plan of a source, and what its configuration says.

    Raises:
        PlntError: it holds no model that the runtime can serve as the spec says.
    """
    globs = globs or Globs()
    listed = await source.list_files()
    check_names(list(listed), source.where)
    choice = await _choose(source, drop_excluded(listed, globs), globs)
    files = await _pin(source, sorted({*choice.side, *choice.weights}))
    packed = source.packed.sizes if source.packed is not None else {}
    check_total(files, source.where)
    await _check_small_weights(source, [one for one in files if one.path in choice.weights and one.path not in packed])
    config, checkpoint = await _read_model(source, files)
    check_checkpoint(runtime, quantization, checkpoint, source.where)
    archives = source.packed.archives if source.packed is not None else ()
    plain = [file for file in files if file.path not in packed]
    return Resolved(
        plan=PullPlan(source=source.where, files=[*archives, *plain], globs=globs),
        weight_bytes=_count_weights(source, files, choice),
        online_quantization=needs_quantizing(quantization, checkpoint),
        shape=read_shape(config),
    )


async def _choose(source: Source, sizes: dict[str, int], globs: Globs) -> Choice:
    """Choose the files; what lies deep in archives is chosen again when they are unpacked."""
    if source.packed is not None and not source.packed.is_complete:
        side = [name for name in weight_files.choose_side_files(sizes) if name not in source.packed.sizes]
        seen = [name for name in (weight_files.CONFIG, *weight_files.QUANTIZATION_FILES) if name in sizes]
        weights = [name for name in sizes if is_weights(name) and name not in source.packed.sizes]
        return Choice(side=sorted({*side, *seen}), weights=weights)
    side = weight_files.choose_side_files(sizes)
    weight_files.check_side_files(side, source.where)
    return choose_files(sizes, await _read_index(source, side), globs, source.where)


def _count_weights(source: Source, files: Iterable[PlannedFile], choice: Choice) -> int:
    counted = sum(file.size for file in files if file.path in choice.weights)
    if source.packed is None or source.packed.is_complete:
        return counted
    return counted + sum(archive.size for archive in source.packed.archives)


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


async def _read_model(source: Source, files: Iterable[PlannedFile]) -> tuple[dict[str, Any], Checkpoint]:
    """Read the configuration and how the weights are stored, a few KB before anything is pulled."""
    pinned = {file.path: file for file in files}
    config = await _read_json(source, pinned[weight_files.CONFIG])
    side = {name: await _read_json(source, pinned[name]) for name in weight_files.QUANTIZATION_FILES if name in pinned}
    return config, read_checkpoint(config, side)


async def _read_json(source: Source, file: PlannedFile) -> dict[str, Any]:
    return parse_json_object(await source.read_file(file), file.path, source.where)
