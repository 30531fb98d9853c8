"""Where a stream stands in its topics: one position per topic partition.

An offset is what Spark keeps in the checkpoint, as readable JSON:

    {"persistent://public/default/orders-partition-0": {"ledger": 12, "entry": 340}, ...}

A position is the last entry that is read, and means all messages batched in that entry: the
broker confirms entries, never parts of them. A partition that is absent is read from its start.
"""

from collections.abc import Mapping
from typing import NamedTuple, TypeAlias


class Position(NamedTuple):
    """An entry of a managed ledger. Ledger ids only grow, so tuple order is log order."""

    ledger: int
    entry: int

    def __str__(self) -> str:
        return f"{self.ledger}:{self.entry}"


START = Position(-1, -1)

Offset: TypeAlias = dict[str, Position]
OffsetJson: TypeAlias = dict[str, dict[str, int]]


def to_json(offset: Mapping[str, Position]) -> OffsetJson:
    """The offset as Spark stores it; sorted, as Spark compares the text."""
    return {name: {"ledger": p.ledger, "entry": p.entry} for name, p in sorted(offset.items())}


def from_json(stored: OffsetJson) -> Offset:
    """The reverse of `to_json`."""
    return {name: Position(p["ledger"], p["entry"]) for name, p in stored.items()}
