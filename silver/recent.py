"""The last change of each key since a copy of a table was made, for lookups of small batches."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import count, repeat
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from bronze.direct import CHANGE_TYPE

# With more than this, making the copy again is cheaper than keeping the changes beside it.
MOST_KEYS = 100_000
MOST_BYTES = 64 << 20
MOST_PARTS = 64  # each costs every lookup its time, and memory of its own however few its rows


class Kept(NamedTuple):
    """What is in memory."""

    keys: int
    rows: int
    bytes: int
    parts: int


@dataclass
class _Part:
    """Changes that came together. live: how many of them are still the last ones of their keys."""

    changes: pa.Table
    rows: int
    bytes: int
    live: int


class RecentChanges:
    """Changes in the order of the table's versions.

    A row whose key has changed again is dead. Dead rows are dropped when they outnumber the others,
    one part of all rows at a time, so no batch waits for more than a few thousand rows to be
    copied, and a change costs the same however long the process runs.

    key: the column that rows are found by.
    """

    def __init__(self, key: str, schema: pa.Schema) -> None:
        self._key = key
        self._empty = schema.empty_table()
        self._parts: dict[int, _Part] = {}
        self._numbers = count()  # of parts
        self._places: dict[Any, tuple[int, int]] = {}  # by key: the part, and the row in it

    @property
    def kept(self) -> Kept:
        """What is in memory now, dead rows included."""
        parts = self._parts.values()
        rows, size = sum(part.rows for part in parts), sum(part.bytes for part in parts)
        return Kept(len(self._places), rows, size, len(parts))

    def add(self, changes: pa.Table) -> bool:
        """Take in later changes, as of `DirectTable.changes`; False if there are too many now."""
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
            # If they were still more than half, this would come again after few changes.
            return self.kept.bytes <= MOST_BYTES // 2
        return len(self._places) <= MOST_KEYS

    def find(self, keys: Sequence[Any]) -> tuple[pa.Table, list[Any]]:
        """The rows of the keys that have changed and are not deleted; and the other keys."""
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
        """Add a part, with each key once."""
        if changes.num_rows:
            number = next(self._numbers)
            rows = changes.num_rows
            self._parts[number] = _Part(changes, rows, changes.nbytes, live=rows)
            places = zip(repeat(number), count(), strict=False)
            self._places.update(zip(changes[self._key].to_pylist(), places, strict=False))

    def _forget(self, keys: Iterable[Any]) -> None:
        """Rows of these keys are dead from now on."""
        known = (self._places.get(key) for key in keys)
        for number, dead in Counter(place[0] for place in known if place).items():
            self._parts[number].live -= dead
            if not self._parts[number].live:
                del self._parts[number]

    def _merge(self, numbers: Sequence[int]) -> None:
        """Make one part of some, without their dead rows."""
        live = []
        for number in numbers:
            changes = self._parts.pop(number).changes
            keys = enumerate(changes[self._key].to_pylist())
            rows = [row for row, key in keys if self._places[key] == (number, row)]
            live.append(changes.take(pa.array(rows)))
        self._append(pa.concat_tables(live).combine_chunks())
