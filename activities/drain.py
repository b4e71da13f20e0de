"""The time that requests under way get to end, counted over all attempts of a step."""

import asyncio

from temporalio import activity

from activities.clock import ServerClock
from plnt.model.message import Message


class Draining(Message):
    """Kept over a restart of the worker: when the drain began, in seconds since the epoch."""

    started: float


class Drain:
    """A drain that an earlier attempt may have begun; ``read`` is for the heartbeats, which carry its start on."""

    def __init__(self) -> None:
        self._clock = ServerClock()
        details = activity.info().heartbeat_details
        self._draining = Draining.model_validate(details[0]) if details else None

    def read(self) -> Draining | None:
        """Give when the drain began; none = it has not."""
        return self._draining

    def begin(self, *, afresh: bool = False) -> None:
        """Begin, or go on with what an earlier attempt began; ``afresh``: new requests came until now."""
        if self._draining is None or afresh:
            self._draining = Draining(started=self._clock.time())
            activity.heartbeat(self._draining)

    async def wait(self, seconds: float) -> None:
        """Wait until the drain has taken ``seconds`` since its begin."""
        began = self._clock.time() if self._draining is None else self._draining.started
        await asyncio.sleep(max(0.0, began + seconds - self._clock.time()))
