"""Rows of a state table by key, for the lookups of small batches: the time of a lookup then depends
on the batch alone, where the table must be read whole to find few rows in it.

A copy of what is looked up lies in files that are mapped into memory, with its keys in order. What
the table's change feed says has changed since is kept beside it. The files have no name any more
once they are mapped, so nothing of them outlives the process, however it ends.
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

from bronze.direct import DirectTable

CHUNK_ROWS = 128 * 1024
MOST_ROWS = 50_000_000  # beyond it, sorting the keys would take more memory than the driver has
MOST_CHANGES = 100_000  # are kept beside the copy before it is made anew

log = structlog.get_logger()


class StateCache:
    """A copy of some columns of a state table, brought up to date before it is asked.

    key: the column that rows are found by, integers or strings.
    columns: what is known of each row; the key among them.
    folder: where the copy is made, on this machine.
    """

    def __init__(self, key: str, columns: Sequence[str], folder: Path) -> None:
        self._key = key
        self._columns = list(dict.fromkeys([key, *columns]))
        self._folder = folder
        self._version = -1
        self._copy: _Copy | None = None
        self._recent: list[pa.Table] = []
        self._places: dict[Any, tuple[int, int] | None] = {}  # in `_recent`; None: it is gone

    def find(self, table: DirectTable, values: pa.Array) -> pa.Table:
        """The rows with one of the values as their key; NULL finds none.

        Args:
            table: the table at its version of now.
            values: keys, each once.
        """
        copy = self._refresh(table)
        if copy is None:
            return table.find(self._key, values.drop_null(), self._columns)
        old, new = [], dict[int, list[int]]()
        for value in values.drop_null().to_pylist():
            if value not in self._places:
                old.append(value)
            elif (place := self._places[value]) is not None:
                new.setdefault(place[0], []).append(place[1])
        parts = [self._recent[number].take(pa.array(rows)) for number, rows in new.items()]
        return pa.concat_tables([copy.find(pa.array(old, values.type)), *parts]).combine_chunks()

    def _refresh(self, table: DirectTable) -> "_Copy | None":
        if self._copy is None or not self._follow(table):
            self._recent, self._places, self._copy = [], {}, None
            if table.count_rows() <= MOST_ROWS:
                self._copy = _Copy.of(table, self._key, self._columns, self._folder)
        self._version = table.version
        return self._copy

    def _follow(self, table: DirectTable) -> bool:
        """Take in what has changed since the version of before; False if that is too much."""
        if table.version == self._version:
            return True
        most = MOST_CHANGES - len(self._places)
        changes = table.changes(self._version + 1, self._columns, most)
        if changes is None:
            return False
        number = len(self._recent)
        self._recent.append(changes.select(self._columns))
        kinds = zip(
            changes[self._key].to_pylist(), changes["_change_type"].to_pylist(), strict=True
        )
        for row, (key, kind) in enumerate(kinds):
            self._places[key] = None if kind == "delete" else (number, row)
        return True


class _Copy(NamedTuple):
    """Rows as they came, in chunks, and where those of each key are.

    rows: mapped into memory.
    begins: the number of the first row of each chunk.
    keys: of all rows, in order, also mapped.
    places: the number of the row of each of them.
    """

    rows: pa.Table
    begins: np.ndarray
    keys: pa.Array
    places: np.ndarray

    @classmethod
    def of(cls, table: DirectTable, key: str, columns: Sequence[str], folder: Path) -> "_Copy":
        folder.mkdir(parents=True, exist_ok=True)
        rows = _mapped(folder, table.schema(columns), _chunks(table, columns))
        column = rows[key].combine_chunks()
        places = pc.sort_indices(column).cast(pa.int64())
        index = pa.record_batch({"key": column.take(places), "place": places})
        sorted_ = _mapped(folder, index.schema, iter([index]))
        begins = np.cumsum([0, *(len(chunk) for chunk in rows[key].chunks)][:-1])
        ordered, numbers = (sorted_[name].combine_chunks() for name in ("key", "place"))
        return cls(rows, begins, ordered, numbers.to_numpy())

    def find(self, wanted: pa.Array) -> pa.Table:
        """The rows of some keys, none of them NULL."""
        found = np.sort(self.places[np.fromiter(self._positions(wanted), np.int64)])
        chunks = np.searchsorted(self.begins, found, side="right") - 1
        parts = [self.rows.slice(0, 0)]
        batches = self.rows.to_batches()  # no copy
        for number in np.unique(chunks):
            inside = found[chunks == number] - self.begins[number]
            parts.append(pa.Table.from_batches([batches[number]]).take(pa.array(inside)))
        return pa.concat_tables(parts)

    def _positions(self, wanted: pa.Array) -> Iterator[int]:
        """Where the keys are among those in order, without those that are not there."""
        count = len(self.keys) - self.keys.null_count  # NULLs are the last
        if pa.types.is_integer(self.keys.type):
            keys = self.keys.slice(0, count).to_numpy()
            values = wanted.to_numpy()
            span = np.iinfo(
                keys.dtype
            )  # what is compared must be of one type, or all are brought to it
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
    """The first values of an array, each brought to Python when it is looked at."""

    def __init__(self, array: pa.Array, count: int) -> None:
        self._array = array
        self._count = count

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, place: Any) -> Any:
        return self._array[place].as_py()


def _chunks(table: DirectTable, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """All rows, many at once: each chunk costs a lookup its time."""
    waiting: list[pa.RecordBatch] = []
    for batch in table.batches(columns):
        waiting.append(batch)
        if sum(each.num_rows for each in waiting) >= CHUNK_ROWS:
            yield pa.concat_batches(waiting)
            waiting = []
    if waiting:
        yield pa.concat_batches(waiting)


def _mapped(folder: Path, schema: pa.Schema, batches: Iterator[pa.RecordBatch]) -> pa.Table:
    """Write rows into a file without a name, and map it."""
    with tempfile.NamedTemporaryFile(dir=folder) as file:
        with pa.ipc.new_file(file, schema) as writer:
            for batch in batches:
                writer.write_batch(batch)
        file.flush()
        return pa.ipc.open_file(pa.memory_map(file.name)).read_all()
