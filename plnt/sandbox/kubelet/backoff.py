"""The kubelet's delays between two starts of a container, and between two pulls."""

from dataclasses import dataclass

CAP_FACTOR = 30
"""The longest delay is 30 times the first one: 10 s and 300 s on a real node."""
FORGET_FACTOR = 60
"""A container that ran 60 times the first delay (10 minutes) starts over."""


@dataclass(slots=True)
class BackOff:
    """Delays of one container: the first restart comes at once, then ``base`` seconds, doubling up to the cap."""

    base: float
    delay: float = 0.0

    def next(self, ran_seconds: float = 0.0) -> float:
        """Give the delay before the next start, in seconds, after a run of ``ran_seconds``."""
        if ran_seconds >= self.base * FORGET_FACTOR:
            self.delay = 0.0
        current = self.delay
        self.delay = min(self.base * CAP_FACTOR, max(self.base, self.delay * 2))
        return current

    def next_after_failure(self) -> float:
        """Give the delay before the next try when there is no free first one."""
        self.next()
        return self.delay
