"""The models of the examples, in every further source."""

import asyncio
import tempfile
from pathlib import Path

from plnt.sandbox.component import Site
from plnt.sandbox.model_files import ModelFolder, write_model
from plnt.sandbox.sources.components import SOURCES, hub_root, source_url
from plnt.sandbox.sources.hub import write_repository
from plnt.sandbox.sources.seed import push_modelcar, push_modelpack, seed_gs
from plnt.sandbox.supervisor import Supervisor

START_SECONDS = 60.0
EXAMPLE = ModelFolder(total_bytes=4 << 20, shards=2, stub={"ttftMs": 20, "tpotMs": 2, "loadSeconds": 0.2})


async def seed_sources(site: Site, supervisor: Supervisor) -> None:
    """Fill the further sources when they answer."""
    await supervisor.wait_ready(SOURCES, START_SECONDS)
    with tempfile.TemporaryDirectory(prefix="plnt-model-") as name:
        folder = Path(name)
        await asyncio.to_thread(write_model, folder, EXAMPLE)
        registry = source_url(site, "registry")
        await asyncio.to_thread(write_repository, hub_root(site), "meta-llama/Llama-3.1-8B-Instruct", folder)
        await seed_gs(source_url(site, "gs"), "plnt-models", "llama-3.1-8b/fp16", folder)
        await push_modelpack(registry, "models/llama-3.1-8b", "fp16", folder)
        await push_modelcar(registry, "models/llama-3.1-8b-modelcar", "fp16", folder)
