"""Tests that a token bucket keeps a loop at its rate, and allows only short bursts."""

import random
import time

import pytest

from lakehouse.messages.token_bucket import BURST_SECONDS, TokenBucket


class Clock:
    """A clock that only sleeping and working move, in steps as uneven as a scheduler's."""

    def __init__(self) -> None:
        self.now = 1000.0
        self._rng = random.Random(7)

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        assert seconds > 0
        self.now += seconds + self._rng.random() * 0.003


@pytest.mark.parametrize("rate", [0.5, 10, 1_000, 50_000])
def test_the_mean_rate_over_ten_seconds_is_within_five_percent(rate: float) -> None:
    clock = Clock()
    bucket = TokenBucket(rate, clock, clock.sleep)
    begun, taken = clock.now, 0
    while clock.now - begun < 10:
        bucket.take()
        taken += 1
    assert taken - 1 == pytest.approx(10 * rate, rel=0.05)


def test_a_short_delay_is_made_up_for_and_a_long_one_only_in_part() -> None:
    for delay, burst in ((BURST_SECONDS / 2, 50), (60, 100)):
        clock = Clock()
        bucket = TokenBucket(400, clock, clock.sleep)
        bucket.take()
        bucket.take()
        clock.now += delay
        begun, taken = clock.now, 0
        while clock.now == begun:
            bucket.take()
            taken += 1
        assert taken == pytest.approx(burst, abs=3), "messages without waiting"


def test_a_loop_that_is_slower_than_the_rate_never_waits() -> None:
    clock = Clock()
    bucket = TokenBucket(100, clock, lambda _: pytest.fail("waited"))
    for _ in range(50):
        bucket.take()
        clock.now += 0.02


def test_the_real_clock_is_monotonic_time() -> None:
    bucket = TokenBucket(2_000)
    begun = time.monotonic()
    for _ in range(2_001):
        bucket.take()
    assert 1 <= time.monotonic() - begun < 2
