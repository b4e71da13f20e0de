"""Events on pods, as ``kubectl describe pod`` shows them."""

import asyncio
import logging
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from uuid import uuid4

from plnt.clients.kube import Kube, Object, Resource
from plnt.errors import PlntError

logger = logging.getLogger(__name__)

CORE_EVENTS = Resource("v1", "events")
_MOST_WAITING = 1000
_LONGEST_MESSAGE = 1000


@dataclass(slots=True)
class Events:
    """Writes events one after the other; none waits for it, and a full queue drops the newest."""

    kube: Kube
    waiting: asyncio.Queue[Object] = field(default_factory=lambda: asyncio.Queue(_MOST_WAITING))

    def record(self, pod: Object, kind: str, reason: str, message: str) -> None:
        """Note an event of ``kind`` Normal or Warning."""
        meta = pod["metadata"]
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        with suppress(asyncio.QueueFull):
            self.waiting.put_nowait(
                {
                    "apiVersion": "v1",
                    "kind": "Event",
                    "metadata": {"name": f"{meta['name'][:200]}.{uuid4().hex[:16]}", "namespace": meta["namespace"]},
                    "involvedObject": {"apiVersion": "v1", "kind": "Pod"}
                    | {key: meta[key] for key in ("name", "namespace", "uid")},
                    "type": kind,
                    "reason": reason,
                    "message": message[:_LONGEST_MESSAGE],
                    "source": {"component": "kubelet", "host": pod["spec"].get("nodeName", "")},
                    "firstTimestamp": now,
                    "lastTimestamp": now,
                    "count": 1,
                }
            )

    async def write(self) -> None:
        """Write what is recorded until cancelled; an event that the API refuses is lost, as on a real node."""
        while True:
            event = await self.waiting.get()
            try:
                await self.kube.create(CORE_EVENTS, event["metadata"]["namespace"], event)
            except PlntError as error:
                logger.debug("event not written", extra={"reason": error.reason})
