"""List and watch of WorkflowRuns, written for failure: own loop, read limits, relist, synthetic deletes."""

import asyncio
import json
import logging
import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NoReturn

import aiohttp
from aiohttp.http_exceptions import HttpProcessingError

from plnt.clients.kube import WORKFLOW_RUNS, Kube
from plnt.errors import AccessDenied, ApiUnavailable, Expired, NotFound, PlntError
from plnt.model.poke import Key, Seen, read_seen

logger = logging.getLogger(__name__)

FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 0.8, 30.0
"""Back-off between attempts, doubled each time and jittered; client-go's reflector uses the same."""
REFUSED_PAUSE_SECONDS = 5.0
"""Pause after 403 or 404: a missing right or CRD is repaired by people, who should not have to wait long."""
MIN_WATCH_SECONDS = 1.0
"""Least time between two watches, for a server that closes each at once."""
WATCH_SECONDS = (240, 300)
"""Length asked for a watch, in seconds, drawn anew each time so that many watchers do not reconnect at once."""
IDLES_TO_DEATH = 3
"""After this many silent periods without progress the process counts as stuck."""


@dataclass(frozen=True, slots=True)
class Change:
    """A WorkflowRun as a list or an event shows it; ``gone``: it is deleted, ``seen`` is its last state."""

    seen: Seen
    gone: bool = False
    listed: bool = False


class _Malformed(Exception):
    """The stream sent what is no event: it cannot be known what was lost."""


class Watch:
    """Follows the WorkflowRuns of one namespace, or of all."""

    def __init__(
        self, kube: Kube, namespace: str | None, offer: Callable[[Change], None], *, resync: float, idle: float
    ) -> None:
        """Hand each change to ``offer``; list anew every ``resync`` seconds, reopen after ``idle`` silent ones."""
        self._kube = kube
        self._namespace = namespace
        self._offer = offer
        self._resync = resync
        self._idle = idle
        self._store: dict[Key, Seen] = {}
        self._version = ""
        self._pause = FIRST_PAUSE_SECONDS
        self._last_progress = time.monotonic()
        self._fault = "WorkflowRuns were not listed yet"

    @property
    def scope(self) -> str:
        """The namespace, for people."""
        return f"namespace {self._namespace}" if self._namespace else "all namespaces"

    def check_alive(self) -> str:
        """Give what is wrong when the loop makes no progress, else an empty string."""
        age = time.monotonic() - self._last_progress
        stuck = age > IDLES_TO_DEATH * self._idle
        return f"the watch of {self.scope} made no progress for {age:.0f} s: {self._fault}" if stuck else ""

    def check_ready(self) -> str:
        """Give why the WorkflowRuns are not followed at the moment, else an empty string."""
        return self._fault

    def misses(self, key: Key) -> bool:
        """Say whether a WorkflowRun would be known here and is not."""
        return self._namespace in (None, key[0]) and key not in self._store

    async def run(self) -> NoReturn:
        """Follow for ever."""
        while True:
            try:
                await self._list()
                await self._follow()
            except Expired as error:
                logger.info("list anew", extra={"scope": self.scope, "reason": str(error)})
                await self._back_off()
            except _Malformed as error:
                logger.warning("malformed watch event", extra={"scope": self.scope, "error": str(error)})
                await self._back_off()
            except (AccessDenied, NotFound) as error:
                self._note_progress(fault=str(error))
                logger.error("cannot watch", extra={"scope": self.scope, "error": str(error)})
                await asyncio.sleep(REFUSED_PAUSE_SECONDS)
            except PlntError as error:
                await self._note_outage(error)

    async def _list(self) -> None:
        """Take a full list as the truth: what it leaves out is deleted, even if no event said so."""
        try:
            manifests, version = await self._kube.list(WORKFLOW_RUNS, self._namespace)
        except (KeyError, TypeError) as error:
            raise _Malformed(f"a list without usable metadata: {type(error).__name__} {error}") from error
        found = [_read(manifest) for manifest in manifests]
        live = {seen.key: seen for seen in found}
        for key, known in list(self._store.items()):
            if key not in live or live[key].uid != known.uid:
                self._offer(Change(known, gone=True, listed=True))
        self._store, self._version = live, version
        for seen in found:
            self._offer(Change(seen, listed=True))
        self._pause = FIRST_PAUSE_SECONDS
        self._note_progress()

    async def _follow(self) -> None:
        """Watch, again and again, until it is time for the next full list."""
        until = time.monotonic() + self._resync
        while (left := until - time.monotonic()) > 0:
            started = time.monotonic()
            try:
                async with asyncio.timeout(left):
                    await self._watch(min(left, random.uniform(*WATCH_SECONDS)))  # noqa: S311
            except TimeoutError:
                return
            except ApiUnavailable as error:
                await self._note_outage(error)
            spare = min(started + MIN_WATCH_SECONDS, until) - time.monotonic()
            await asyncio.sleep(max(0.0, spare))

    async def _watch(self, seconds: float) -> None:
        query = {
            "watch": "true",
            "allowWatchBookmarks": "true",
            "resourceVersion": self._version,
            "timeoutSeconds": str(int(seconds) + 1),
        }
        async with self._kube.stream(WORKFLOW_RUNS.path(self._namespace), query, self._idle) as response:
            self._note_progress()
            while line := await _read_line(response):
                self._take(line)

    def _take(self, line: bytes) -> None:
        kind, manifest = _parse_event(line)
        if kind == "ERROR":
            raise _stream_error(manifest)
        self._version = manifest["metadata"]["resourceVersion"]
        self._pause = FIRST_PAUSE_SECONDS
        self._note_progress()
        if kind == "BOOKMARK":
            return
        seen = _read(manifest)
        if kind == "DELETED":
            self._drop(seen)
        else:
            self._keep(seen)

    def _drop(self, seen: Seen) -> None:
        known = self._store.get(seen.key)
        if known is not None and known.uid == seen.uid:
            del self._store[seen.key]
        self._offer(Change(seen, gone=True))

    def _keep(self, seen: Seen) -> None:
        """Store and pass on, unless it was seen or is older than what was seen: generations never fall."""
        known = self._store.get(seen.key)
        if known is not None and known.uid == seen.uid:
            if known.resource_version == seen.resource_version or seen.generation < known.generation:
                return
        elif known is not None:
            self._offer(Change(known, gone=True))
        self._store[seen.key] = seen
        self._offer(Change(seen))

    def _note_progress(self, fault: str = "") -> None:
        self._last_progress, self._fault = time.monotonic(), fault

    async def _note_outage(self, error: PlntError) -> None:
        self._fault = str(error)
        logger.warning("kubernetes api unavailable", extra={"scope": self.scope, "error": str(error)})
        await self._back_off(error.after.total_seconds() if error.after else 0.0)

    async def _back_off(self, least: float = 0.0) -> None:
        await asyncio.sleep(max(least, self._pause * random.uniform(1.0, 2.0)))  # noqa: S311
        self._pause = min(self._pause * 2, LONGEST_PAUSE_SECONDS)


def _read(manifest: dict[str, Any]) -> Seen:
    try:
        return read_seen(manifest)
    except (KeyError, TypeError, ValueError) as error:
        raise _Malformed(f"an object without usable metadata: {type(error).__name__} {error}") from error


async def _read_line(response: aiohttp.ClientResponse) -> bytes:
    """Give the next line, or nothing at a clean end.

    Raises:
        _Malformed: the line is cut, or longer than any object may be.
    """
    try:
        line = await response.content.readline()
    except (ValueError, HttpProcessingError) as error:
        raise _Malformed(f"a line that is too long: {error}") from error
    if line and not line.endswith(b"\n"):
        raise _Malformed(f"a line cut after {len(line)} bytes")
    return line


def _parse_event(line: bytes) -> tuple[str, dict[str, Any]]:
    try:
        event = json.loads(line)
        kind, manifest = event["type"], event["object"]
        if kind != "ERROR":
            manifest["metadata"]["resourceVersion"]
    except (ValueError, TypeError, KeyError) as error:
        raise _Malformed(f"{type(error).__name__} in {line[:100]!r}") from error
    return kind, manifest


def _stream_error(status: dict[str, Any]) -> Expired | ApiUnavailable:
    code, message = status.get("code"), str(status.get("message", ""))
    said = f"watch: {code} {status.get('reason', '')} {message}"
    if code == 410 or status.get("reason") in {"Expired", "Gone"} or "oo large resource version" in message:
        return Expired(said)
    return ApiUnavailable(said)
