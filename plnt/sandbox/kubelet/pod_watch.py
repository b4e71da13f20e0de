"""List and watch of the pods that are bound to a node, over restarts of the API server."""

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Callable

import aiohttp

from plnt.clients.kube import PODS, Kube, Object
from plnt.errors import ApiUnavailable, Expired, PlntError

logger = logging.getLogger(__name__)

_BOUND = "spec.nodeName!="
_WATCH_SECONDS = 240
_IDLE_SECONDS = 90.0
"""The API server sends a bookmark each minute."""
_FIRST_RETRY_SECONDS = 0.2
_LAST_RETRY_SECONDS = 2.0


async def follow_pods(kube: Kube, replace: Callable[[list[Object]], None], take: Callable[[str, Object], None]) -> None:
    """Call ``replace`` with every full list and ``take`` with the type and object of every change, until cancelled."""
    pause = _FIRST_RETRY_SECONDS
    while True:
        try:
            items, version = await kube.list(PODS, fields=_BOUND)
            replace(items)
            pause = _FIRST_RETRY_SECONDS
            await _follow_from(kube, version, take)
        except PlntError as error:
            logger.info("pods are listed again", extra={"reason": error.reason, "fault": str(error)})
        await asyncio.sleep(pause)
        pause = min(_LAST_RETRY_SECONDS, pause * 2)


async def _follow_from(kube: Kube, version: str, take: Callable[[str, Object], None]) -> None:
    """Watch from ``version`` on, stream after stream, until the API server or the connection fails."""
    while True:
        async for kind, item in _read_stream(kube, version):
            version = item["metadata"]["resourceVersion"]
            if kind != "BOOKMARK":
                take(kind, item)
        await asyncio.sleep(_FIRST_RETRY_SECONDS)


async def _read_stream(kube: Kube, version: str) -> AsyncIterator[tuple[str, Object]]:
    query = {
        "watch": "true",
        "fieldSelector": _BOUND,
        "resourceVersion": version,
        "allowWatchBookmarks": "true",
        "timeoutSeconds": str(_WATCH_SECONDS),
    }
    async with kube.stream(PODS.path(), query, _IDLE_SECONDS) as response:
        try:
            async for line in response.content:
                event = json.loads(line)
                if event["type"] == "ERROR":
                    raise Expired(f"watch of pods: {event['object'].get('message', '')}")
                yield event["type"], event["object"]
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError, KeyError) as error:
            raise ApiUnavailable(f"watch of pods: {type(error).__name__} {error}") from error
