"""Computes `order_time`, which orders the messages of a topic whose number of partitions changes.

While the number of partitions is constant, a key stays in its partition, and the log orders its
messages. When the number changes, keys move, even between partitions that existed before. Ledger
ids do not tell which of two partitions' messages came first. Producers learn of new partitions one
after the other, within a minute.

A change therefore begins an era. Messages after the positions at which the change was noticed are
ordered by publish time, and by position where publish times are equal. The era ends at the last
message that existed when all producers had long learned of the change. Later messages all share one
later order time, so the log orders them again. Before the first change, the order time is NULL.

    NULL | publish time, between low and high | high | publish time, above that high | ...

The checkpoint's offsets hold the eras beside the positions. A planned batch that runs again, and a
replay of any messages, therefore produce the same order times.
"""

import itertools
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from pulsar_spark.offsets import START, Offset, OffsetJson, Position, from_json, to_json

# Far longer than producers take to learn of new partitions: 60 s with the clients' defaults.
LEARNING_MICROS = 600 * 1_000_000


class Span(NamedTuple):
    """The bounds of order times, in µs since 1970.

    A publish time outside the bounds is replaced by the nearer bound. If low = high, the log alone
    determines the order.
    """

    low: int
    high: int


class Era(NamedTuple):
    """The span of the order times of the messages after the positions `since`."""

    span: Span
    since: Offset

    @property
    def is_settled(self) -> bool:
        """Whether all producers know the new number of partitions."""
        return self.span.low == self.span.high


class Partitioning(NamedTuple):
    """The number of partitions of a topic, and its eras since it was first read, oldest first."""

    partitions: int
    eras: tuple[Era, ...] = ()

    def changed(self, partitions: int, read: Offset, now: int) -> "Partitioning":
        """This partitioning with a new era. Called by the planner when the number has changed.

        Args:
            partitions: the new number of partitions.
            read: the last planned position of each partition when the change was noticed.
            now: the time at which the change was noticed, in µs since 1970.
        """
        low, since = 0, read
        if self.eras:
            last = self.eras[-1]
            # Older messages may still arrive in an era that has not settled, so it is extended.
            low = last.span.high + 1 if last.is_settled else last.span.low
            since = _later(read, last.since)
        high = max(now, low, *(era.span.high for era in self.eras)) + LEARNING_MICROS
        return Partitioning(partitions, (*self.eras, Era(Span(low, high), since)))

    def settled(self, ends: Offset, now: int) -> "Partitioning":
        """End the current era if all producers have learned of the change by `now`.

        Args:
            ends: the last position of each partition, read after `now`.
            now: in µs since 1970.

        Returns:
            This partitioning, unchanged if no era ends.
        """
        if not self.eras or self.eras[-1].is_settled or now < self.eras[-1].span.high:
            return self
        last = self.eras[-1]
        end = Era(Span(last.span.high, last.span.high), _later(ends, last.since))
        return self._replace(eras=(*self.eras, end))

    def pieces(
        self, name: str, after: Position, until: Position
    ) -> Iterator[tuple[Position, Position, Span | None]]:
        """Split a range of a partition where an era begins.

        Yields:
            Where each piece begins and ends, and the span of its order times (None before any era).
        """
        begins = sorted({era.since.get(name, START) for era in self.eras})
        cuts = [after, *(each for each in begins if after < each < until), until]
        for begin, end in itertools.pairwise(cuts):
            spans = [era.span for era in self.eras if era.since.get(name, START) <= begin]
            yield begin, end, spans[-1] if spans else None


Partitionings = Mapping[str, Partitioning]  # by topic


def with_partitionings(offset: Offset, topics: Partitionings) -> OffsetJson:
    """An offset and the partitionings of its topics, in the form that Spark stores."""
    stored = {name: _stored(each) for name, each in sorted(topics.items())}
    return {**to_json(offset), **stored}


def partitionings(stored: OffsetJson) -> dict[str, Partitioning]:
    """The partitionings in a stored offset. Topics planned by older versions have none."""
    return {
        topic: Partitioning(
            fields["partitions"],
            tuple(
                Era(Span(era["low"], era["high"]), from_json(era["since"]))
                for era in fields["eras"]
            ),
        )
        for topic, fields in stored.items()
        if "partitions" in fields
    }


def _stored(topic: Partitioning) -> dict[str, Any]:
    eras = [{**era.span._asdict(), "since": to_json(era.since)} for era in topic.eras]
    return {"partitions": topic.partitions, "eras": eras}


def _later(one: Offset, other: Offset) -> Offset:
    names = {*one, *other}
    return {name: max(one.get(name, START), other.get(name, START)) for name in names}
