"""What the log of a Delta table says of its files. No file is opened, so it costs milliseconds."""

import datetime as dt
from collections.abc import Iterable

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable

from bronze.settings import LakeSettings
from bronze.storage import Place, open_table
from bronze.tables import TableSpec


class TableFiles:
    """The files of the last version of a table.

    Where a table has deletion vectors, `rows` counts what they mark too, and `newest` may be of a
    row that is deleted.
    """

    def __init__(self, settings: LakeSettings, place: Place) -> None:
        self._files = files_of(open_table(settings, place))
        self.rows = sum(self._files["num_records"].to_pylist() or [0])
        self.count = self._files.num_rows
        self.size = int(pc.sum(self._files["size_bytes"]).as_py() or 0)

    def newest(self, column: str) -> dt.datetime | None:
        """The latest instant in a column, to the millisecond; None if there is none."""
        return newest(self._files, column)


def files_of(delta: DeltaTable) -> pa.Table:
    """The files of a version, a row each, with the range of each column in `min.…` and `max.…`."""
    return pa.table(delta.get_add_actions(flatten=True))


def newest(files: pa.Table, column: str) -> dt.datetime | None:
    """The latest instant in a column of these files, cut to the millisecond; None without one."""
    name = f"max.{column}"
    if name not in files.column_names:
        return None
    found: dt.datetime | None = pc.max(files[name]).as_py()
    return found


def table_files(settings: LakeSettings, tables: Iterable[TableSpec]) -> dict[str, TableFiles]:
    """The files of those tables that there are, by full name."""
    return {
        t.full_name: TableFiles(settings, t.path(settings)) for t in tables if t.exists(settings)
    }
