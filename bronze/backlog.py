"""What a topic partition holds, by the broker's ledger statistics, and where a batch may end.

The broker knows entries and bytes of each ledger, exactly; how the bytes lie within a ledger it
does not tell, so they count evenly spread. Pure arithmetic, no broker.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from bronze.eras import Span
from bronze.offsets import START, WHOLE, Position


class Ledger(NamedTuple):
    """A segment of a topic partition's log: its id, its entries and their bytes."""

    id: int
    entries: int
    size: int


@dataclass(frozen=True)
class PartitionLog:
    """The ledgers of a topic partition, oldest first."""

    ledgers: Sequence[Ledger]

    def entries_behind(self, position: Position) -> int:
        """Entries behind a position."""
        return sum(count for _, _, count in self._rests(position))

    def bytes_behind(self, position: Position) -> int:
        """Bytes behind a position."""
        rests = self._rests(position)
        return round(sum(ledger.size * count / ledger.entries for ledger, _, count in rests))

    def advance(self, position: Position, entries: int) -> Position:
        """The position `entries` entries later, at most the end of the log."""
        for ledger, first, count in self._rests(position):
            reached = min(entries, count)
            if reached > 0:
                position = Position(ledger.id, first + reached - 1)
                entries -= reached
        return position

    def _rests(self, position: Position) -> list[tuple[Ledger, int, int]]:
        """Ledgers with entries behind a position: the first of them, and how many."""
        found = []
        # An entry that is half read counts as unread.
        begun = max(position.entry + (position.batch == WHOLE), 0)
        for ledger in self.ledgers:
            first = begun if ledger.id == position.ledger else 0
            if ledger.id >= position.ledger and first < ledger.entries:
                found.append((ledger, first, ledger.entries - first))
        return found


class PartitionRange(NamedTuple):
    """The messages of a topic partition behind `after`, up to and with `until`.

    receiver_queue: how many messages the client may hold, so that they fit in memory.
    compacted: up to where the compacted copy goes, if that is to be read.
    order_times: between which instants the messages' order times lie; None if they have none.
    ledgers: those of the range and the ones before, by which its entries are accounted for.
    """

    topic: str
    after: Position
    until: Position
    receiver_queue: int
    compacted: Position = START
    order_times: Span | None = None
    ledgers: Sequence[Ledger] = ()


def share(limit: int, waiting: Mapping[str, int]) -> dict[str, int]:
    """Divide a limit among partitions by what waits in each, as Spark's Kafka source does.

    Each that has something waiting gets at least 1, so that none starves: the sum may exceed the
    limit by one per partition.
    """
    total = sum(waiting.values())
    if total <= limit:
        return dict(waiting)
    return {name: max(limit * count // total, 1) for name, count in waiting.items() if count}
