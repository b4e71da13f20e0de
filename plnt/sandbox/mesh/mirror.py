"""A copy of all objects of one kind, kept by list and watch."""

import asyncio
import json
import logging
import random
from collections.abc import AsyncIterator, Callable
from typing import Any

import aiohttp

from plnt.clients.kube import Kube, Object, Resource
from plnt.errors import ApiUnavailable, Expired, PlntError

logger = logging.getLogger(__name__)

IDLE_SECONDS = 80.0
"""Longest silence on the watch before it is reopened; the API server sends a bookmark every 60 s."""
WATCH_SECONDS = 290
RETRY_SECONDS = 0.2
MAX_RETRY_SECONDS = 3.0
"""A restart of the sandbox's API server takes about as long."""

Key = tuple[str, str]


class Mirror:
    """The objects of ``resource`` in all namespaces; ``changed`` is called after each change.

    While the API server cannot be reached the copy stays as it was last seen.
    """

    def __init__(self, kube: Kube, resource: Resource, changed: Callable[[], None]) -> None:
        self._kube = kube
        self._resource = resource
        self._changed = changed
        self._objects: dict[Key, Object] = {}
        self.filled = False
        """Whether all objects were listed once."""

    @property
    def objects(self) -> list[Object]:
        """All objects as last seen."""
        return list(self._objects.values())

    async def run(self) -> None:
        """Keep the copy up to date until cancelled; every fault leads to a new list."""
        delay = RETRY_SECONDS
        while True:
            try:
                version = await self._list()
                delay = RETRY_SECONDS
                while True:
                    version = await self._watch(version)
                    await asyncio.sleep(RETRY_SECONDS)
            except PlntError as error:
                logger.warning("watch broken", extra={"resource": self._resource.plural, "error": str(error)})
            await asyncio.sleep(delay * random.uniform(0.5, 1.5))  # noqa: S311 - spreads load, keeps no secret
            delay = min(delay * 2, MAX_RETRY_SECONDS)

    async def _list(self) -> str:
        objects, version = await self._kube.list(self._resource)
        self._objects = {_key(item): item for item in objects}
        self.filled = True
        self._changed()
        return version

    async def _watch(self, version: str) -> str:
        """Follow one watch to its end; gives the version to go on from.

        Raises:
            Expired: the version is too old.
            ApiUnavailable: the stream broke or held something else than events.
        """
        query = {
            "watch": "true",
            "allowWatchBookmarks": "true",
            "resourceVersion": version,
            "timeoutSeconds": str(WATCH_SECONDS),
        }
        async with self._kube.stream(self._resource.path(), query, IDLE_SECONDS) as response:
            async for line in _lines(response.content):
                version = self._take(line)
        return version

    def _take(self, line: bytes) -> str:
        kind, item = _parse_event(line)
        version: str = item["metadata"]["resourceVersion"]
        if kind == "DELETED":
            self._objects.pop(_key(item), None)
        elif kind != "BOOKMARK":
            self._objects[_key(item)] = item
        if kind != "BOOKMARK":
            self._changed()
        return version


async def _lines(content: aiohttp.StreamReader) -> AsyncIterator[bytes]:
    try:
        async for line in content:
            yield line
    except (aiohttp.ClientError, OSError, TimeoutError, ValueError) as error:
        raise ApiUnavailable(f"watch: {type(error).__name__} {error}") from error


def _parse_event(line: bytes) -> tuple[str, dict[str, Any]]:
    try:
        event = json.loads(line)
        kind, item = event["type"], event["object"]
    except (ValueError, TypeError, KeyError):
        raise ApiUnavailable("watch: a line is no event") from None
    if kind == "ERROR":
        raise Expired(f"watch: {item.get('code')} {item.get('message')}")
    return kind, item


def _key(item: Object) -> Key:
    return item["metadata"].get("namespace", ""), item["metadata"]["name"]
