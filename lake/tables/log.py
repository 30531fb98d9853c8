"""Reads statistics of a table's files from its Delta log.

No data file is opened, so this takes milliseconds.
"""

import datetime as dt

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable


class TableFiles:
    """Statistics of the files in the newest version of a table.

    rows: number of rows, including those that deletion vectors mark as deleted.
    count: number of files.
    size: total size of the files in bytes.
    """

    def __init__(self, log: DeltaTable) -> None:
        self._files = files_of(log)
        self.rows = sum(self._files["num_records"].to_pylist() or [0])
        self.count = self._files.num_rows
        self.size = int(pc.sum(self._files["size_bytes"]).as_py() or 0)

    def newest(self, column: str) -> dt.datetime | None:
        """The latest instant in a column, in whole milliseconds; None if there is none.

        The row that holds it may be deleted if the table has deletion vectors.
        """
        return newest(self._files, column)


def files_of(delta: DeltaTable) -> pa.Table:
    """One row for each file of a version; `min.…` and `max.…` hold the range of each column."""
    return pa.table(delta.get_add_actions(flatten=True))


def newest(files: pa.Table, column: str) -> dt.datetime | None:
    """The latest instant in a column of these files, in whole milliseconds; None if there is none.

    Args:
        files: the result of `files_of`.
        column: a timestamp column.
    """
    name = f"max.{column}"
    if name not in files.column_names:
        return None
    found: dt.datetime | None = pc.max(files[name]).as_py()
    return found


def oldest(files: pa.Table, column: str) -> dt.datetime | None:
    """The earliest instant in a column of these files, in whole milliseconds.

    None if there is none, or if a file does not say.

    Args:
        files: the result of `files_of`.
        column: a timestamp column.
    """
    name = f"min.{column}"
    if name not in files.column_names or files[name].null_count:
        return None
    found: dt.datetime | None = pc.min(files[name]).as_py()
    return found
