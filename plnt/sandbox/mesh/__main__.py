"""``python -m plnt.sandbox.mesh --state DIR``: keep Envoy's clusters as the cluster's ready endpoints are."""

import asyncio
import logging
import sys
from pathlib import Path

from plnt.clients.kube import ENDPOINT_SLICES, SERVICES, Kube
from plnt.sandbox.feed import open_parser, run_feed
from plnt.sandbox.mesh.clusters import render_clusters
from plnt.sandbox.mesh.config import clusters_file
from plnt.sandbox.mesh.mirror import Mirror
from plnt.sandbox.state import write_json

logger = logging.getLogger("plnt.sandbox.mesh")


class Feed:
    """Writes the file of clusters whenever Services or endpoints change what it says."""

    def __init__(self, api: Kube, file: Path, domain: str) -> None:
        self._file = file
        self._domain = domain
        self._dirty = asyncio.Event()
        self._services = Mirror(api, SERVICES, self._dirty.set)
        self._slices = Mirror(api, ENDPOINT_SLICES, self._dirty.set)
        self._written: object = None

    async def run(self) -> None:
        """Feed until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._services.run())
            group.create_task(self._slices.run())
            group.create_task(self._write_changes())

    async def _write_changes(self) -> None:
        while True:
            await self._dirty.wait()
            self._dirty.clear()
            if not (self._services.filled and self._slices.filled):
                continue
            clusters = render_clusters(self._services.objects, self._slices.objects, self._domain)
            if clusters != self._written:
                write_json(self._file, clusters)
                self._written = clusters
                logger.info("clusters written", extra={"clusters": len(clusters["resources"])})


def main() -> int:
    """Run the command."""
    parser = open_parser("plnt.sandbox.mesh", __doc__)
    parser.add_argument("--domain", default="cluster.local", help="DNS domain of the cluster")
    arguments = parser.parse_args()
    file = clusters_file(arguments.state)
    file.parent.mkdir(parents=True, exist_ok=True)
    return run_feed(lambda api: Feed(api, file, arguments.domain).run())


if __name__ == "__main__":
    sys.exit(main())
