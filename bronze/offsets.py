"""Where a stream stands in its topics: one position per topic partition.

An offset is what Spark keeps in the checkpoint, as readable JSON:

    {"persistent://public/default/orders-partition-0": {"ledger": 12, "entry": 340}, ...}

A position is the last message that is read. Without a batch index it means all messages of its
entry, which is how batches end: the broker counts and confirms entries, never parts of them. With
one (`"batch": 7`) the messages up to and with that index. A partition that is absent is read from
its start.

Beside its partitions an offset names each partitioned topic, with what orders the messages of
different partitions (`eras.py`).
"""

from collections.abc import Mapping
from typing import Any, NamedTuple, TypeAlias

WHOLE = 2**31 - 1  # beyond every batch index


class Position(NamedTuple):
    """A message of a managed ledger. Ledger ids only grow, so tuple order is log order.

    batch: index in the entry, 0 for a message that is not batched; `WHOLE` stands for all.
    """

    ledger: int
    entry: int
    batch: int = WHOLE

    def __str__(self) -> str:
        whole = f"{self.ledger}:{self.entry}"
        return whole if self.batch == WHOLE else f"{whole}:{self.batch}"


START = Position(-1, -1)

Offset: TypeAlias = dict[str, Position]
OffsetJson: TypeAlias = dict[str, dict[str, Any]]


def to_json(offset: Mapping[str, Position]) -> OffsetJson:
    """The offset as Spark stores it; sorted, as Spark compares the text."""
    return {name: _stored(position) for name, position in sorted(offset.items())}


def from_json(stored: OffsetJson) -> Offset:
    """The reverse of `to_json`, of positions alone."""
    return {
        name: Position(**fields) for name, fields in stored.items() if "partitions" not in fields
    }


def _stored(position: Position) -> dict[str, int]:
    fields = position._asdict()
    if position.batch == WHOLE:
        del fields["batch"]
    return fields
