"""Computes the size of a backlog, and where a batch may end, from the broker's ledger statistics.

The broker reports the exact number of entries and bytes of each ledger, but not how the bytes are
spread within a ledger. Bytes are therefore assumed to be evenly spread between the sizes that the
growing ledger had when it was looked at. This module does arithmetic only and never contacts the
broker.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from pulsar_spark.eras import Span
from pulsar_spark.offsets import START, WHOLE, Position


class Ledger(NamedTuple):
    """A segment of a topic partition's log: its id, its number of entries, and its bytes."""

    id: int
    entries: int
    size: int


@dataclass(frozen=True)
class PartitionLog:
    """The ledgers of a topic partition, oldest first.

    seen: some of these ledgers as they were before, with fewer entries.
    """

    ledgers: Sequence[Ledger]
    seen: Sequence[Ledger] = ()

    def entries_behind(self, position: Position) -> int:
        """Number of entries after a position."""
        return sum(count for _, _, count in self._rests(position))

    def bytes_behind(self, position: Position) -> int:
        """Estimated number of bytes after a position."""
        return round(sum(self._size(ledger, first) for ledger, first, _ in self._rests(position)))

    def advance(self, position: Position, entries: int) -> Position:
        """The position `entries` entries later, or the end of the log if that comes first."""
        for ledger, first, count in self._rests(position):
            reached = min(entries, count)
            if reached > 0:
                position = Position(ledger.id, first + reached - 1)
                entries -= reached
        return position

    def _size(self, ledger: Ledger, first: int) -> float:
        """The estimated bytes of a ledger from an entry on."""
        before = [
            (n, size) for id_, n, size in self.seen if id_ == ledger.id and n < ledger.entries
        ]
        import numpy as np  # commands that only look at positions start faster without it

        counts, sizes = zip((0, 0), *before, (ledger.entries, ledger.size), strict=True)
        return ledger.size - float(np.interp(first, counts, sizes))

    def _rests(self, position: Position) -> list[tuple[Ledger, int, int]]:
        """Each ledger with entries after a position, with the first of them and their number."""
        found = []
        # An entry that is only partly read counts as unread.
        begun = max(position.entry + (position.batch == WHOLE), 0)
        for ledger in self.ledgers:
            first = begun if ledger.id == position.ledger else 0
            if ledger.id >= position.ledger and first < ledger.entries:
                found.append((ledger, first, ledger.entries - first))
        return found


class PartitionRange(NamedTuple):
    """The messages of a topic partition after `after`, up to and including `until`.

    receiver_queue: how many messages the client may prefetch, limited so that they fit in memory.
    compacted: the last position of the compacted copy, if that copy is read.
    order_times: the bounds of the messages' order times; None if the messages have none.
    ledgers: the ledgers of the range and those before it, needed to account for every entry.
    """

    topic: str
    after: Position
    until: Position
    receiver_queue: int
    compacted: Position = START
    order_times: Span | None = None
    ledgers: Sequence[Ledger] = ()


def share(limit: int, waiting: Mapping[str, int]) -> dict[str, int]:
    """Divide a limit among partitions in proportion to their backlogs, like Spark's Kafka source.

    Every partition with a backlog gets at least 1, so that none starves. The sum may therefore
    exceed the limit by one per partition.
    """
    total = sum(waiting.values())
    if total <= limit:
        return dict(waiting)
    return {name: max(limit * count // total, 1) for name, count in waiting.items() if count}
