"""``python -m plnt.sandbox.metrics --state DIR --prometheus URL``: keep Prometheus's files as the cluster says."""

import asyncio
import logging
import sys
from pathlib import Path
from typing import Any

import aiohttp

from plnt.clients.kube import PODS, Kube, Resource
from plnt.sandbox.feed import open_parser, run_feed
from plnt.sandbox.mesh.mirror import Mirror
from plnt.sandbox.metrics.config import SECONDS, rules_file, targets_file
from plnt.sandbox.metrics.targets import render_groups, render_targets
from plnt.sandbox.state import write_json

logger = logging.getLogger("plnt.sandbox.metrics")

POD_MONITORS = Resource("monitoring.coreos.com/v1", "podmonitors")
RULES = Resource("monitoring.coreos.com/v1", "prometheusrules")
RELOAD_SECONDS = 10.0
RETRY_SECONDS = 1.0


class Feed:
    """Writes targets and rules whenever the cluster changes what they say; Prometheus is told of rules."""

    def __init__(self, api: Kube, state: Path, prometheus: str) -> None:
        self._state = state
        self._prometheus = prometheus
        self._dirty = asyncio.Event()
        self._pods = Mirror(api, PODS, self._dirty.set)
        self._monitors = Mirror(api, POD_MONITORS, self._dirty.set)
        self._rules = Mirror(api, RULES, self._dirty.set)
        self._written: dict[Path, Any] = {}

    async def run(self) -> None:
        """Feed until cancelled."""
        async with asyncio.TaskGroup() as group:
            for mirror in (self._pods, self._monitors, self._rules):
                group.create_task(mirror.run())
            group.create_task(self._write_changes())

    async def _write_changes(self) -> None:
        while True:
            await self._dirty.wait()
            self._dirty.clear()
            if not (self._pods.filled and self._monitors.filled and self._rules.filled):
                continue
            self._write(targets_file(self._state), render_targets(self._monitors.objects, self._pods.objects))
            if self._write(rules_file(self._state), render_groups(self._rules.objects, f"{SECONDS}s")):
                await self._reload()

    def _write(self, file: Path, content: Any) -> bool:
        """Write the file if its content changed; tells whether it did."""
        if self._written.get(file) == content:
            return False
        write_json(file, content)
        self._written[file] = content
        logger.info("%s written", file.name)
        return True

    async def _reload(self) -> None:
        """Let Prometheus read its rules again; one that does not answer yet reads them when it starts."""
        limit = aiohttp.ClientTimeout(total=RELOAD_SECONDS)
        while True:
            try:
                async with (
                    aiohttp.ClientSession(timeout=limit) as session,
                    session.post(f"{self._prometheus}/-/reload") as response,
                ):
                    if response.status != 200:
                        logger.error("rules refused: %s", await response.text())
                return
            except (aiohttp.ClientError, TimeoutError) as error:
                logger.warning("Prometheus not told of its rules yet: %s", error)
                await asyncio.sleep(RETRY_SECONDS)


def main() -> int:
    """Run the command."""
    parser = open_parser("plnt.sandbox.metrics", __doc__)
    parser.add_argument("--prometheus", required=True, help="URL of Prometheus")
    arguments = parser.parse_args()
    return run_feed(lambda api: Feed(api, arguments.state, arguments.prometheus).run())


if __name__ == "__main__":
    sys.exit(main())
