"""The time by Temporal's clock, so that a worker whose own clock is wrong, or is set meanwhile, measures rightly."""

from datetime import datetime, timedelta
from time import monotonic

from temporalio import activity


class ServerClock:
    """Counts on from the moment at which the server says that this attempt began."""

    def __init__(self) -> None:
        self._started = activity.info().started_time
        self._began = monotonic()

    def now(self) -> datetime:
        """Give the time."""
        return self._started + timedelta(seconds=monotonic() - self._began)

    def time(self) -> float:
        """Give the seconds since the epoch."""
        return self.now().timestamp()
