"""What orders the messages of a topic to which partitions were added: `order_time`.

While the number of partitions is constant, a key stays in its partition, and the log orders its
messages. With another number keys move, also between partitions that were there before, and ledger
ids say nothing of which of two partitions' messages came first. Producers learn of new partitions
one after the other, within a minute.

So a change begins an era: messages behind the positions where it was noticed are ordered by the
time at which they were published, and by position where that is equal. The era ends with the
messages that were there when all producers had long learned of the change: those behind it have one
and the same order time, which is later, so the log orders them again. Before the first change it is
NULL.

    NULL | publish time, between low and high | high | publish time, above that high | ...

The eras are kept in the checkpoint's offsets, beside the positions, so a planned batch that runs
again, and a replay of any messages, give the same order times.
"""

import itertools
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from bronze.offsets import START, Offset, OffsetJson, Position, from_json, to_json

# Far above what producers take to learn of new partitions: 60 s with the clients' defaults.
LEARNING_MICROS = 600 * 1_000_000


class Span(NamedTuple):
    """Between which instants order times lie, in µs since 1970. Publish times outside count as the
    nearer one; low = high leaves the order to the log.
    """

    low: int
    high: int


class Era(NamedTuple):
    """The span of the order times of the messages behind some positions."""

    span: Span
    since: Offset

    @property
    def is_settled(self) -> bool:
        """Whether all producers know of the change."""
        return self.span.low == self.span.high


class Partitioning(NamedTuple):
    """How many partitions a topic has, and the eras since it was first read, oldest first."""

    partitions: int
    eras: tuple[Era, ...] = ()

    def changed(self, partitions: int, read: Offset, now: int) -> "Partitioning":
        """With another number of partitions, of which no message up to `read` knows.

        Args:
            partitions: how many there are now.
            read: up to where the topic was planned when that was noticed.
            now: when, in µs.
        """
        low, since = 0, read
        if self.eras:
            last = self.eras[-1]
            # In an era that has not settled, older messages may still come: it becomes longer.
            low = last.span.high + 1 if last.is_settled else last.span.low
            since = _later(read, last.since)
        high = max(now, low, *(era.span.high for era in self.eras)) + LEARNING_MICROS
        return Partitioning(partitions, (*self.eras, Era(Span(low, high), since)))

    def settled(self, ends: Offset, now: int) -> "Partitioning":
        """The same, or with its era at an end, if by `now` all producers have learned of it.

        Args:
            ends: of the partitions, as they were after `now`.
            now: in µs.
        """
        if not self.eras or self.eras[-1].is_settled or now < self.eras[-1].span.high:
            return self
        last = self.eras[-1]
        end = Era(Span(last.span.high, last.span.high), _later(ends, last.since))
        return self._replace(eras=(*self.eras, end))

    def pieces(
        self, name: str, after: Position, until: Position
    ) -> Iterator[tuple[Position, Position, Span | None]]:
        """A range of a partition, cut where another era begins; with the span of each piece."""
        begins = sorted({era.since.get(name, START) for era in self.eras})
        cuts = [after, *(each for each in begins if after < each < until), until]
        for begin, end in itertools.pairwise(cuts):
            spans = [era.span for era in self.eras if era.since.get(name, START) <= begin]
            yield begin, end, spans[-1] if spans else None


Partitionings = Mapping[str, Partitioning]  # by topic


def with_partitionings(offset: Offset, topics: Partitionings) -> OffsetJson:
    """An offset as Spark stores it, with the partitionings of its topics."""
    stored = {name: _stored(each) for name, each in sorted(topics.items())}
    return {**to_json(offset), **stored}


def partitionings(stored: OffsetJson) -> dict[str, Partitioning]:
    """The partitionings in a stored offset; none of topics that older versions have planned."""
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
