"""Replaces the content of a table with that of another table, in one commit.

Files are linked, so nothing is copied. In a bucket, S3 itself copies them. All links can be made
before the first commit, so several tables can be committed within milliseconds of one another.
"""

import datetime as dt
import json
import time
from decimal import Decimal
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable
from deltalake.transaction import AddAction, RemoveAction

from lake.settings.settings import LakeSettings
from lake.tables.storage import is_there, link


class Swap:
    """Takes over the content of one table into another. `Table.swap_from` makes it."""

    def __init__(
        self, settings: LakeSettings, source: tuple[str, DeltaTable], table: tuple[str, DeltaTable]
    ) -> None:
        """Both tables are given as their path and their opened log."""
        self._settings = settings
        self._from, self._source = source
        self._to, self._table = table

    @property
    def version(self) -> int:
        """The version that readers see."""
        return self._table.version()

    def link(self) -> None:
        """Link the new files into the table's folder. Readers do not see them yet."""
        for name in _files(self._source).keys() - _files(self._table).keys():
            target = f"{self._to}/{name}"
            if not is_there(self._settings, target):
                link(self._settings, f"{self._from}/{name}", target)

    def commit(self, *, whole: bool = False) -> int:
        """Show the new content to readers, unless nothing has changed.

        Args:
            whole: whether to replace all files, even those that both tables have. Needed if files
                of the table may have deletion vectors.

        Returns:
            The number of files that the table no longer uses.
        """
        new, old = _files(self._source), _files(self._table)
        is_changed = self._source.schema() != self._table.schema()
        if new.keys() == old.keys() and not is_changed:
            return 0
        whole = whole or is_changed
        gone = [_remove(row) for path, row in old.items() if path not in new]
        actions: list[AddAction | RemoveAction] = [
            _add(row) for path, row in new.items() if whole or path not in old
        ]
        if not whole:  # otherwise the transaction removes all old files by itself
            actions += gone
        mode = "overwrite" if whole else "append"
        self._table.create_write_transaction(actions, mode, self._source.schema())
        self._table.update_incremental()
        return len(gone)


def _files(table: DeltaTable) -> dict[str, dict[str, Any]]:
    rows = pa.table(table.get_add_actions()).to_pylist()
    return {row["path"]: row for row in rows}


def _add(row: dict[str, Any]) -> AddAction:
    stats = {
        "numRecords": row["num_records"],
        "minValues": _comparable(row.get("min")),
        "maxValues": _comparable(row.get("max")),
        "nullCount": row.get("null_count") or {},
    }
    text = json.dumps(stats)
    return AddAction(row["path"], row["size_bytes"], {}, row["modification_time"], True, text)


def _remove(row: dict[str, Any]) -> RemoveAction:
    now = int(time.time() * 1000)
    return RemoveAction(row["path"], True, now, row["size_bytes"], {})


def _comparable(values: dict[str, Any] | None) -> dict[str, Any]:
    """Statistics in the form of Delta's log. Instants are left out, because the log rounds them."""
    found: dict[str, Any] = {}
    for name, value in (values or {}).items():
        if isinstance(value, bool | dt.datetime) or value is None:
            continue
        if isinstance(value, int | float | str):
            found[name] = value
        elif isinstance(value, Decimal):
            found[name] = float(value)
        elif isinstance(value, dt.date):
            found[name] = value.isoformat()
    return found
