"""Paces a loop to a mean rate, as a token bucket."""

import time
from collections.abc import Callable

BURST_SECONDS = 0.25


class TokenBucket:
    """A bucket that fills with `rate` tokens per second, of which each turn of a loop takes one.

    The bucket holds the tokens of `BURST_SECONDS`, so that a loop that was held up for less than
    that still reaches the rate. A longer delay is not made up for, because a burst would follow.

    rate: tokens per second.
    clock: returns seconds, and never steps back.
    sleep: waits for some seconds, or longer.
    """

    def __init__(
        self,
        rate: float,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._rate = rate
        self._capacity = max(rate * BURST_SECONDS, 1.0)
        self._clock = clock
        self._sleep = sleep
        self._tokens = 1.0
        self._filled = clock()

    def take(self) -> None:
        """Take a token. Wait until there is one."""
        while self._tokens < 1:
            self._fill()
            if self._tokens < 1:
                self._sleep((1 - self._tokens) / self._rate)
        self._tokens -= 1

    def _fill(self) -> None:
        now = self._clock()
        self._tokens = min(self._tokens + (now - self._filled) * self._rate, self._capacity)
        self._filled = now
