"""The last change of each key since a copy of a table was made, for lookups of small batches."""

from collections.abc import Sequence
from itertools import count
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bronze.direct import CHANGE_TYPE

# With more than this, making the copy again is cheaper than keeping the changes beside it.
MOST_KEYS = 100_000
MOST_BYTES = 64 << 20
MOST_TABLES = 64  # each costs every lookup its time, and memory of its own however few its rows


class Kept(NamedTuple):
    """What is in memory."""

    keys: int
    rows: int
    bytes: int
    tables: int


class RecentChanges:
    """Changes in the order of the table's versions.

    A row whose key has changed again is superseded. Superseded rows stay until they outnumber the
    others; dropping them then costs each change a constant time, however long the process runs.

    key: the column that rows are found by.
    """

    def __init__(self, key: str, schema: pa.Schema) -> None:
        self._key = key
        self._tables = [schema.empty_table()]
        self._begins = [0]  # the number of the first row of each table
        self._numbers: dict[Any, int] = {}  # of the last row of each key
        self._rows = self._bytes = 0

    @property
    def kept(self) -> Kept:
        """What is in memory now, superseded rows included."""
        return Kept(len(self._numbers), self._rows, self._bytes, len(self._tables))

    def add(self, changes: pa.Table) -> bool:
        """Take in later changes, as of `DirectTable.changes`; False if there are too many now."""
        if changes.num_rows:
            self._append(changes)
        superseded = self._rows - len(self._numbers)
        if superseded > len(self._numbers) or len(self._tables) > MOST_TABLES:
            self._compact()
        if self._bytes > MOST_BYTES:
            self._compact()
            # Full by half, it would be compacted again after few changes.
            return len(self._numbers) <= MOST_KEYS and self._bytes <= MOST_BYTES // 2
        return len(self._numbers) <= MOST_KEYS

    def find(self, keys: Sequence[Any]) -> tuple[pa.Table, list[Any]]:
        """The rows of the keys that have changed and are not deleted; and the other keys."""
        changed = [number for key in keys if (number := self._numbers.get(key)) is not None]
        unchanged = [key for key in keys if key not in self._numbers]
        rows = self._take(np.array(changed, np.int64))
        is_there = pc.not_equal(rows[CHANGE_TYPE], "delete")
        return rows.filter(is_there).drop_columns([CHANGE_TYPE]), unchanged

    def _append(self, changes: pa.Table) -> None:
        self._tables.append(changes)
        self._begins.append(self._rows)
        self._numbers.update(zip(changes[self._key].to_pylist(), count(self._rows), strict=False))
        self._rows += changes.num_rows
        self._bytes += changes.nbytes

    def _compact(self) -> None:
        """Keep the last row of each key, all in one table."""
        last = np.fromiter(self._numbers.values(), np.int64, len(self._numbers))
        rows = self._take(last).combine_chunks()
        self._tables, self._begins, self._numbers = [], [], {}
        self._rows = self._bytes = 0
        self._append(rows)

    def _take(self, numbers: np.ndarray) -> pa.Table:
        return take(self._tables, np.array(self._begins), np.sort(numbers))


def take(tables: Sequence[pa.Table], begins: np.ndarray, numbers: np.ndarray) -> pa.Table:
    """Rows by their numbers over some tables, without looking at tables that have none of them.

    Args:
        tables: at least one; each of one chunk.
        begins: the number of the first row of each.
        numbers: in ascending order.
    """
    owners = np.searchsorted(begins, numbers, side="right") - 1
    parts = [tables[0].slice(0, 0)]
    for owner in np.unique(owners):
        parts.append(tables[owner].take(pa.array(numbers[owners == owner] - begins[owner])))
    return pa.concat_tables(parts)
