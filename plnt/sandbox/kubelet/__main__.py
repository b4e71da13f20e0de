"""``python -m plnt.sandbox.kubelet --state DIR --port P --range N``; ``KUBECONFIG`` names the API server."""

import argparse
import asyncio
import logging
import os
from pathlib import Path

import aiohttp

import plnt
from plnt.clients import kube
from plnt.clients.stopping import run_until, stop_event
from plnt.sandbox.kubelet.agent import Agent
from plnt.sandbox.kubelet.events import Events
from plnt.sandbox.kubelet.logs import serve_logs
from plnt.sandbox.kubelet.pod_site import Shared
from plnt.sandbox.kubelet.processes import end_leftovers
from plnt.sandbox.record import MARK
from plnt.sandbox.state import State
from plnt.settings import Settings
from plnt.telemetry import start_logging

logger = logging.getLogger(__name__)


def parse_arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="python -m plnt.sandbox.kubelet", description="Simulated GPU nodes.")
    parser.add_argument("--state", type=Path, required=True, help="the sandbox's state folder")
    parser.add_argument("--port", type=int, required=True, help="where containers' logs are served")
    parser.add_argument("--range", type=int, required=True, dest="number", help="N of the pods' addresses 10.N.b.c")
    parser.add_argument(
        "--backoff-seconds", type=float, default=10.0, help="first back-off; the longest one is 30 times as long"
    )
    return parser.parse_args()


def compose_process_env(state: State) -> dict[str, str]:
    """Give what every container's process gets below its own environment.

    Services have no addresses that are routed, so a container reaches them through the sandbox's Envoy.
    """
    env = {
        "PATH": os.defpath,
        "LANG": "C.UTF-8",
        "PYTHONPATH": str(Path(plnt.__file__).parents[1]),
        "PYTHONUNBUFFERED": "1",
    }
    envoy = state.read_settings().get("ports", {}).get("envoy")
    if envoy:
        env["http_proxy"] = f"http://127.0.0.1:{envoy}"
    return {**env, MARK: os.environ[MARK]} if MARK in os.environ else env


async def run(arguments: argparse.Namespace) -> None:
    """Play the nodes until SIGTERM."""
    stop = stop_event()
    state = State(arguments.state.absolute())
    ended = end_leftovers(state.root / "kubelet" / "processes")
    if ended:
        logger.warning("processes of an earlier stand-in ended", extra={"processes": ended})
    connector = aiohttp.TCPConnector(force_close=True, limit=0)
    async with aiohttp.ClientSession(connector=connector) as session, kube.connect() as client:
        shared = Shared(
            kube=client,
            session=session,
            events=Events(client),
            state=state.root,
            control=lambda: agent.read_control(),  # noqa: PLW0108 - the agent comes after what it shares
            backoff_seconds=arguments.backoff_seconds,
            process_env=compose_process_env(state),
        )
        agent = Agent(shared, arguments.port, arguments.number)
        async with serve_logs(agent.find_container, arguments.port, state.pki):
            await run_until(stop, agent.run())


if __name__ == "__main__":
    start_logging(Settings())
    asyncio.run(run(parse_arguments()))
