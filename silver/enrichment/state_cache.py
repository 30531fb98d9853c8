"""Finds rows of a state table by key, for the lookups of small batches.

Without the cache, the whole table must be read to find a few rows. With it, the time of a lookup
depends only on the batch.

The looked-up columns are copied to memory-mapped files, with the keys in order. The last change of
each key since then, taken from the table's change feed, is kept in memory. The files are unlinked
once they are mapped, so they disappear with the process, however it ends.
"""

import tempfile
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import structlog

from lake.tables.arrow import CHANGE_TYPE, ArrowTable
from silver.enrichment import recent_changes
from silver.enrichment.recent_changes import Kept, RecentChanges

CHUNK_ROWS = 128 * 1024
MOST_ROWS = 50_000_000  # for more rows, the driver does not have the memory to sort the keys

log = structlog.get_logger()


class StateCache:
    """A copy of some columns of a state table, which is brought up to date before each lookup.

    key: the column by which rows are found, an integer or a string.
    columns: the columns to return.
    folder: a folder on this machine for the copy.
    """

    def __init__(self, key: str, columns: Sequence[str], folder: Path) -> None:
        self._key = key
        self._columns = list(dict.fromkeys([key, *columns]))
        self._folder = folder
        self._version = -1
        self._copy: _Copy | None = None

    def find(self, table: ArrowTable, values: pa.Array) -> pa.Table:
        """Find the rows whose key is one of the values. NULL finds no row.

        Args:
            table: the table, opened at its current version.
            values: keys, each of them once.
        """
        copy = self._refresh(table)
        if copy is None:
            return table.find(self._key, values.drop_null(), self._columns)
        changed, unchanged = copy.changes.find(values.drop_null().to_pylist())
        found = copy.find(pa.array(unchanged, values.type))
        return pa.concat_tables([found, changed]).combine_chunks()

    @property
    def kept(self) -> Kept | None:
        """The size of the changes in memory; None if there is no copy."""
        return self._copy and self._copy.changes.kept

    def _refresh(self, table: ArrowTable) -> "_Copy | None":
        if self._copy is None or not self._follow(table, self._copy):
            self._copy = None  # frees the old copy before the new one is made
            if table.count_rows() <= MOST_ROWS:
                self._copy = _Copy.of(table, self._key, self._columns, self._folder)
        self._version = table.version
        return self._copy

    def _follow(self, table: ArrowTable, copy: "_Copy") -> bool:
        """Add the changes since the last known version; False if there are too many."""
        if table.version == self._version:
            return True
        most = recent_changes.MOST_KEYS, recent_changes.MOST_BYTES
        changes = table.changes(self._version + 1, self._columns, *most)
        return changes is not None and copy.changes.add(changes)


class _Copy(NamedTuple):
    """A copy of the table's rows in chunks, with an index by key.

    tables: the chunks, mapped into memory; the first one is empty.
    begins: the number of the first row of each chunk.
    keys: the keys of all rows, sorted and mapped into memory.
    places: the row number of each key.
    changes: the changes since the copy was made.
    """

    tables: list[pa.Table]
    begins: np.ndarray
    keys: pa.Array
    places: np.ndarray
    changes: RecentChanges

    @classmethod
    def of(cls, table: ArrowTable, key: str, columns: Sequence[str], folder: Path) -> "_Copy":
        folder.mkdir(parents=True, exist_ok=True)
        schema = table.schema(columns)
        rows = _mapped(folder, schema, _chunks(table, columns))
        column = rows[key].combine_chunks()
        places = pc.sort_indices(column).cast(pa.int64())
        index = pa.record_batch({"key": column.take(places), "place": places})
        sorted_ = _mapped(folder, index.schema, iter([index]))
        tables = [schema.empty_table(), *(pa.Table.from_batches([x]) for x in rows.to_batches())]
        begins = np.cumsum([0, *map(len, tables)][:-1])
        ordered, numbers = (sorted_[name].combine_chunks() for name in ("key", "place"))
        changes = RecentChanges(key, schema.append(pa.field(CHANGE_TYPE, pa.string())))
        return cls(tables, begins, ordered, numbers.to_numpy(), changes)

    def find(self, wanted: pa.Array) -> pa.Table:
        """Find the rows of some keys, none of which is NULL."""
        found = np.sort(self.places[np.fromiter(self._positions(wanted), np.int64)])
        owners = np.searchsorted(self.begins, found, side="right") - 1
        parts = [self.tables[0]]
        for owner in np.unique(owners):
            inside = found[owners == owner] - self.begins[owner]
            parts.append(self.tables[owner].take(pa.array(inside)))
        return pa.concat_tables(parts)

    def _positions(self, wanted: pa.Array) -> Iterator[int]:
        """The indexes of the wanted keys in `keys`. Absent keys are skipped."""
        count = len(self.keys) - self.keys.null_count  # NULLs come last
        if pa.types.is_integer(self.keys.type):
            keys = self.keys.slice(0, count).to_numpy()
            values = wanted.to_numpy()
            # Both arrays need the same type; otherwise numpy converts all keys.
            span = np.iinfo(keys.dtype)
            values = values[(values >= span.min) & (values <= span.max)].astype(keys.dtype)
            near = np.searchsorted(keys, values)
            there = near < count
            there[there] = keys[near[there]] == values[there]
            yield from near[there]
        else:
            ordered = _Values(self.keys, count)
            for value in wanted.to_pylist():
                near = bisect_left(ordered, value)
                if near < count and ordered[near] == value:
                    yield near


class _Values(Sequence[Any]):
    """The first values of an array, each converted to Python when it is accessed."""

    def __init__(self, array: pa.Array, count: int) -> None:
        self._array = array
        self._count = count

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, place: Any) -> Any:
        return self._array[place].as_py()


def _chunks(table: ArrowTable, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """All rows in large chunks, because each chunk slows a lookup."""
    waiting: list[pa.RecordBatch] = []
    for batch in table.batches(columns):
        waiting.append(batch)
        if sum(each.num_rows for each in waiting) >= CHUNK_ROWS:
            yield pa.concat_batches(waiting)
            waiting = []
    if waiting:
        yield pa.concat_batches(waiting)


def _mapped(folder: Path, schema: pa.Schema, batches: Iterator[pa.RecordBatch]) -> pa.Table:
    """Write rows to a temporary file, map it into memory, and unlink it."""
    with tempfile.NamedTemporaryFile(dir=folder) as file:
        with pa.ipc.new_file(file, schema) as writer:
            for batch in batches:
                writer.write_batch(batch)
        file.flush()
        return pa.ipc.open_file(pa.memory_map(file.name)).read_all()
