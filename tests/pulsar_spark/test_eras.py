"""Tests the order of messages while partitions are added, for histories read at any time."""

import datetime as dt
import itertools
import random
from typing import NamedTuple

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from model import Position as Place

from pulsar_spark.eras import Partitioning, Span, partitionings, with_partitionings
from pulsar_spark.offsets import START, Offset, Position

SECOND = 1_000_000
LEARNS_WITHIN = 60 * SECOND  # the clients' default
SKEW = 120 * SECOND
TOPIC = "persistent://a/b/c"
EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.timezone.utc)


class Written(NamedTuple):
    """A message: its true producer and write time, and what is known of it."""

    producer: int
    key: int
    at: int
    published: int
    partition: int
    position: Position


class History:
    """A topic to which partitions are added, and whose producers learn of them late.

    Ledger ids do not show which partition was written first. The clock of the last producer steps
    back.
    """

    def __init__(self, seed: int) -> None:
        self._rng = rng = random.Random(seed)
        self.now = 10**15
        self.log: list[Written] = []
        self.partitions = 2
        self._ledgers = rng.sample(range(10), 6)
        self._knows = [2, 2, 2, 2]
        self._learns = [0, 0, 0, 0]
        self._skews = [rng.randint(-SKEW, SKEW) for _ in self._knows]

    def write(self) -> None:
        """Write a few messages; only producer 0 writes key 0, and so on, and all write key 9."""
        rng = self._rng
        for _ in range(rng.randint(0, 6)):
            self.now += rng.choice([2_000, SECOND, 40 * SECOND, 700 * SECOND])
            who = rng.randrange(4)
            if self._learns[who] <= self.now:
                self._knows[who] = self.partitions
            back = rng.choice([0, 3600 * SECOND]) if who == 3 else 0
            key = rng.choice([who, who, 9])
            partition = hash((key, 7)) % self._knows[who]
            position = Position(self._ledgers[partition], len(self.log))
            times = self.now, (self.now + self._skews[who] - back) // 1000 * 1000
            self.log.append(Written(who, key, *times, partition, position))

    def widen(self) -> None:
        if self.partitions < 6:
            self.partitions = self._rng.randint(self.partitions + 1, 6)
            self._learns = [self.now + self._rng.randint(0, LEARNS_WITHIN) for _ in self._knows]

    def ends(self) -> Offset:
        return {name(each.partition): each.position for each in self.log}


def name(partition: int) -> str:
    return f"{TOPIC}-partition-{partition}"


class Reader:
    """Plans batches as the source does and lands them with their order times in µs."""

    def __init__(self, history: History, rng: random.Random) -> None:
        self._history = history
        self._rng = rng
        self._read: Offset = {}
        self.order = Partitioning(history.partitions)
        self.landed: dict[Written, int | None] = {}

    def land(self, *, whole: bool = False) -> None:
        history, begun = self._history, self._read
        ends, now = history.ends(), history.now
        if history.partitions != self.order.partitions:
            self.order = self.order.changed(history.partitions, begun, now)
        else:
            self.order = self.order.settled(ends, now)
        stored = with_partitionings(begun, {TOPIC: self.order})
        self.order = partitionings(stored)[TOPIC]  # as read from the checkpoint
        for partition, end in ends.items():
            if not whole and self._rng.random() < 0.3:
                continue  # it lags behind
            self.landed |= order_times(history, self.order, partition, begun.get(partition), end)
            self._read = {**self._read, partition: end}


def order_times(
    history: History, order: Partitioning, partition: str, after: Position | None, until: Position
) -> dict[Written, int | None]:
    found = {}
    for begin, end, span in order.pieces(partition, after or START, until):
        for each in history.log:
            if name(each.partition) == partition and begin < each.position <= end:
                found[each] = None if span is None else int(np.clip(each.published, *span))
    return found


def place(each: Written, order_time: int | None) -> Place:
    then = None if order_time is None else EPOCH + dt.timedelta(microseconds=order_time)
    return Place(each.position.ledger, each.position.entry, 0, each.partition, then)


def told(seed: int) -> tuple[History, Reader]:
    rng = random.Random(seed)
    history = History(seed + 1)
    reader = Reader(history, rng)
    for _ in range(rng.randint(1, 25)):
        rng.choice([history.write, history.write, history.widen, reader.land])()
    reader.land(whole=True)
    return history, reader


seeds = st.integers(0, 2**32)


@settings(max_examples=400, deadline=None)
@given(seeds)
def test_the_later_message_of_a_producer_wins(seed: int) -> None:
    history, reader = told(seed)
    places = {each: place(each, reader.landed[each]).order for each in history.log}
    for key in range(3):  # of producers whose clocks do not step back
        mine = [each for each in history.log if each.key == key]
        if mine:
            assert max(mine, key=places.__getitem__) == mine[-1]


@settings(max_examples=400, deadline=None)
@given(seeds)
def test_a_replay_of_any_messages_orders_them_as_before(seed: int) -> None:
    history, reader = told(seed)
    rng = random.Random(seed)
    for partition, end in history.ends().items():
        log = [each.position for each in history.log if name(each.partition) == partition]
        cuts = [START, *sorted(rng.sample(log, rng.randint(0, len(log) - 1))), end]
        for after, until in itertools.pairwise(cuts):
            again = order_times(history, reader.order, partition, after, until)
            assert again == {each: reader.landed[each] for each in again}


@settings(max_examples=400, deadline=None)
@given(seeds)
def test_the_log_decides_within_a_partition_except_in_a_window(seed: int) -> None:
    history, reader = told(seed)
    for one in history.log:
        for other in history.log:
            if one.partition != other.partition or one.position >= other.position:
                continue
            spans = [span_at(reader.order, each) for each in (one, other)]
            if not all(span is not None and span.low < span.high for span in spans):
                places = [place(each, reader.landed[each]).order for each in (one, other)]
                assert places[0] < places[1]


def span_at(order: Partitioning, each: Written) -> Span | None:
    *_, last = order.pieces(name(each.partition), START, each.position)
    return last[2]


def test_a_topic_that_never_changes_is_ordered_only_by_its_log() -> None:
    order = Partitioning(3).settled({}, 10**15)
    assert list(order.pieces(name(0), START, Position(7, 1))) == [(START, Position(7, 1), None)]


def test_a_change_is_followed_by_a_window_and_then_by_the_log_again() -> None:
    order = Partitioning(2).changed(3, {name(0): Position(7, 4)}, 5 * SECOND)
    assert order.settled({name(0): Position(7, 9)}, 604 * SECOND) == order
    order = order.settled({name(0): Position(7, 9)}, 605 * SECOND)
    high = 605 * SECOND
    assert list(order.pieces(name(0), START, Position(7, 20))) == [
        (START, Position(7, 4), None),
        (Position(7, 4), Position(7, 9), Span(0, high)),
        (Position(7, 9), Position(7, 20), Span(high, high)),
    ]
    again = order.changed(4, {name(0): Position(7, 12)}, 700 * SECOND)
    assert again.eras[-1].span == Span(high + 1, 1300 * SECOND)


def test_what_a_lagging_partition_had_when_a_window_ended_stays_in_that_window() -> None:
    """Another change is noticed before the partition is read. Other partitions are ahead."""
    order = Partitioning(2).changed(3, {name(0): Position(7, 4)}, 5 * SECOND)
    order = order.settled({name(0): Position(7, 9)}, 605 * SECOND)
    order = order.changed(4, {name(0): Position(7, 6)}, 700 * SECOND)
    high = 605 * SECOND
    assert list(order.pieces(name(0), Position(7, 6), Position(7, 20))) == [
        (Position(7, 6), Position(7, 9), Span(0, high)),
        (Position(7, 9), Position(7, 20), Span(high + 1, 1300 * SECOND)),
    ]
