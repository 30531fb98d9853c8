"""Keeps the last change of each key since a table was copied, for the lookups of small batches."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import count, repeat
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from lake.tables.arrow import CHANGE_TYPE

# Above these limits, a new copy is cheaper than keeping the changes beside the old one.
MOST_KEYS = 100_000
MOST_BYTES = 64 << 20
MOST_PARTS = 64  # each part slows every lookup, and takes memory even with few rows


class Kept(NamedTuple):
    """The size of what is in memory.

    keys: number of keys.
    rows: number of rows, including dead ones.
    bytes: size of the rows.
    parts: number of parts.
    """

    keys: int
    rows: int
    bytes: int
    parts: int


@dataclass
class _Part:
    """Changes that were added or merged together.

    live: how many of the rows are still the last change of their key.
    """

    changes: pa.Table
    rows: int
    bytes: int
    live: int


class RecentChanges:
    """The last change of each key, from changes added in the order of the table's versions.

    A row whose key has changed again is dead. When dead rows outnumber live ones, they are dropped,
    one part at a time. No batch therefore waits for more than a few thousand rows to be copied, and
    the cost of a change does not grow while the process runs.

    key: the column by which rows are found.
    schema: the columns of the changes.
    """

    def __init__(self, key: str, schema: pa.Schema) -> None:
        self._key = key
        self._empty = schema.empty_table()
        self._parts: dict[int, _Part] = {}
        self._numbers = count()  # of parts
        self._places: dict[Any, tuple[int, int]] = {}  # by key: the part, and the row in it

    @property
    def kept(self) -> Kept:
        """The current size, including dead rows."""
        parts = self._parts.values()
        rows, size = sum(part.rows for part in parts), sum(part.bytes for part in parts)
        return Kept(len(self._places), rows, size, len(parts))

    def add(self, changes: pa.Table) -> bool:
        """Add later changes, as `ArrowTable.changes` returns them.

        Returns:
            False if there are too many changes now, so that the table should be copied again.
        """
        last = dict(zip(changes[self._key].to_pylist(), count(), strict=False))
        if len(last) < changes.num_rows:
            changes = changes.take(pa.array(last.values()))
        self._forget(last)
        self._append(changes)
        if len(self._parts) > MOST_PARTS:
            self._merge(sorted(self._parts, key=lambda n: self._parts[n].rows)[:2])
        while self.kept.rows > 2 * len(self._places):
            self._merge([min(self._parts, key=lambda n: self._parts[n].live / self._parts[n].rows)])
        if self.kept.bytes > MOST_BYTES:
            self._merge(list(self._parts))
            # With more than half of the limit left, this merge would soon be needed again.
            return self.kept.bytes <= MOST_BYTES // 2
        return len(self._places) <= MOST_KEYS

    def find(self, keys: Sequence[Any]) -> tuple[pa.Table, list[Any]]:
        """Find the rows of keys that have changed.

        Returns:
            The rows of changed keys that are not deleted, and the keys that have not changed.
        """
        unchanged, changed = [], dict[int, list[int]]()
        for key in keys:
            place = self._places.get(key)
            if place is None:
                unchanged.append(key)
            else:
                changed.setdefault(place[0], []).append(place[1])
        found = [self._parts[number].changes.take(pa.array(n)) for number, n in changed.items()]
        rows = pa.concat_tables([self._empty, *found])
        is_there = pc.not_equal(rows[CHANGE_TYPE], "delete")
        return rows.filter(is_there).drop_columns([CHANGE_TYPE]), unchanged

    def _append(self, changes: pa.Table) -> None:
        """Add a part in which each key occurs once."""
        if changes.num_rows:
            number = next(self._numbers)
            rows = changes.num_rows
            self._parts[number] = _Part(changes, rows, changes.nbytes, live=rows)
            places = zip(repeat(number), count(), strict=False)
            self._places.update(zip(changes[self._key].to_pylist(), places, strict=False))

    def _forget(self, keys: Iterable[Any]) -> None:
        """Mark the rows of these keys as dead, and drop parts without live rows."""
        known = (self._places.get(key) for key in keys)
        for number, dead in Counter(place[0] for place in known if place).items():
            self._parts[number].live -= dead
            if not self._parts[number].live:
                del self._parts[number]

    def _merge(self, numbers: Sequence[int]) -> None:
        """Merge some parts into one without their dead rows."""
        live = []
        for number in numbers:
            changes = self._parts.pop(number).changes
            keys = enumerate(changes[self._key].to_pylist())
            rows = [row for row, key in keys if self._places[key] == (number, row)]
            live.append(changes.take(pa.array(rows)))
        self._append(pa.concat_tables(live).combine_chunks())
