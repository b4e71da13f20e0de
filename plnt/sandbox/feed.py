"""A process that keeps files of another server as the cluster says, until it is told to stop."""

import asyncio
import logging
import sys
from argparse import ArgumentParser
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

from plnt.clients import kube
from plnt.clients.kube import Kube
from plnt.clients.stopping import run_until, stop_event

Work = Callable[[Kube], Coroutine[Any, Any, None]]


def open_parser(module: str, description: str | None) -> ArgumentParser:
    """Give the parser of a feed's command line, which names the sandbox's state folder."""
    parser = ArgumentParser(prog=f"python -m {module}", description=description)
    parser.add_argument("--state", type=Path, required=True, help="the sandbox's state folder")
    return parser


def run_feed(work: Work) -> int:
    """Run the feed until SIGTERM or SIGINT; gives the exit status."""
    logging.basicConfig(level=logging.INFO, stream=sys.stderr, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    asyncio.run(_feed(work))
    return 0


async def _feed(work: Work) -> None:
    stop = stop_event()
    async with kube.connect() as api:
        await run_until(stop, work(api))
