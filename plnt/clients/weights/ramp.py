"""How many connections a pull uses: few at first, more while more are faster.

Object stores give each connection some 90 MB/s, so that many are needed; a source that is limited by its network or by
this machine gives no more over many, and each costs work on both sides and bytes in flight that a crash loses.
"""

FIRST = 4
"""Connections to begin with: one for each file in flight."""
WINDOW_BYTES = 16 << 20
"""Bytes per connection after which the rate is judged."""
WARM_BYTES = 4 << 20
"""Bytes per connection before anything is judged."""
WINDOW_SECONDS = 2.0
"""Longest time until then."""
GAIN = 1.05
"""Growth of the rate that is worth twice the connections; what less would save is not worth what more would lose."""
RETRY_SECONDS = 10.0
"""Time after which more are tried again where they gave nothing."""


class Ramp:
    """Decides from the bytes that came; the caller has the clock."""

    def __init__(self, limit: int, now: float) -> None:
        self.width = min(FIRST, limit)
        """Connections to use now."""
        self._limit = limit
        self._before: tuple[int, float] | None = None
        self._next_try = now
        self._began, self._seen = now, -1

    def look(self, moved: int, now: float) -> int:
        """Give the connections to use from ``now`` on, when ``moved`` bytes have come in all."""
        if self._seen < 0:
            # Connections begin slowly: what comes first says nothing.
            if moved >= WARM_BYTES * self.width or now - self._began >= WINDOW_SECONDS:
                self._began, self._seen = now, moved
            return self.width
        elapsed, came = now - self._began, moved - self._seen
        if came < WINDOW_BYTES * self.width and elapsed < WINDOW_SECONDS:
            return self.width
        self._judge(came / elapsed, now)
        self._began, self._seen = now, moved
        return self.width

    def _judge(self, rate: float, now: float) -> None:
        if self._before is not None:
            width, usual = self._before
            self._before = None
            # Where nothing comes at all, connections hang and others may not.
            if 0 < rate < usual * GAIN:
                self.width, self._next_try = width, now + RETRY_SECONDS
        if now >= self._next_try and self.width < self._limit:
            self._before = (self.width, rate)
            self.width = min(self._limit, self.width * 2)
