"""An offset says how far a stream has read: one position per topic partition.

Spark keeps the offset in the checkpoint, as readable JSON:

    {"persistent://public/default/orders-partition-0": {"ledger": 12, "entry": 340}, ...}

A position is the last message that was read. Without a batch index, it stands for all messages of
its entry. Batches end this way, because the broker counts and acknowledges whole entries. With an
index (`"batch": 7`), it stands for the messages up to and including that index. A partition without
a position is read from its start.

An offset also holds the eras of each partitioned topic, which order the messages of different
partitions (`eras.py`), and an estimate of the batch that ends there:

    {..., "estimate": {"messages": 1200, "bytes": 96000}}
"""

from collections.abc import Mapping
from typing import Any, NamedTuple, TypeAlias

WHOLE = 2**31 - 1  # beyond every batch index


class Position(NamedTuple):
    """A message's place in a topic partition. Ledger ids only grow, so tuple order is log order.

    ledger, entry: ids of the ledger, and of the entry within it.
    batch: index within the entry, 0 for a message that is not batched. `WHOLE` stands for all.
    """

    ledger: int
    entry: int
    batch: int = WHOLE

    def __str__(self) -> str:
        whole = f"{self.ledger}:{self.entry}"
        return whole if self.batch == WHOLE else f"{whole}:{self.batch}"


START = Position(-1, -1)
ESTIMATE = "estimate"
NO_POSITION = {"partitions", "messages"}  # fields that an entry of a stored offset has instead

Offset: TypeAlias = dict[str, Position]
OffsetJson: TypeAlias = dict[str, dict[str, Any]]


class Estimate(NamedTuple):
    """About how much a batch holds. Stored with the offset that ends the batch.

    messages: number of messages, if all entries are as full as the newest one.
    bytes: size at the broker, which is compressed, as estimated by `PartitionLog`.
    """

    messages: int
    bytes: int


def topic_of(partition: str) -> str:
    """The topic of a topic partition. A topic without partitions has its own name."""
    name, _, number = partition.rpartition("-partition-")
    return name if number.isdigit() and name else partition


def with_estimate(stored: OffsetJson, estimate: Estimate) -> OffsetJson:
    """A stored offset with the estimate of the batch that it ends."""
    return {**stored, ESTIMATE: estimate._asdict()}


def estimate_of(stored: OffsetJson) -> Estimate | None:
    """The estimate of the batch that a stored offset ends. None if an older version stored it."""
    return Estimate(**stored[ESTIMATE]) if ESTIMATE in stored else None


def to_json(offset: Mapping[str, Position]) -> OffsetJson:
    """The offset in the form that Spark stores. It is sorted, because Spark compares the text."""
    return {name: _stored(position) for name, position in sorted(offset.items())}


def from_json(stored: OffsetJson) -> Offset:
    """The positions in a stored offset; the inverse of `to_json`. All else is skipped."""
    return {
        name: Position(**fields)
        for name, fields in stored.items()
        if NO_POSITION.isdisjoint(fields)
    }


def _stored(position: Position) -> dict[str, int]:
    fields = position._asdict()
    if position.batch == WHOLE:
        del fields["batch"]
    return fields
