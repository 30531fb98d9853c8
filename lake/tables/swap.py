"""Lets a table become what another one is, in one commit: its files are linked, so nothing is
copied, or in a bucket by S3 alone.

All links can be made before the first commit, so the commits of several tables follow one another
within milliseconds.
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
from lake.tables.storage import is_there, link, open_table


class LinkedTable:
    """A table that readers see, and the one that it is to become.

    The latter must have no deletion vectors, as they would stay behind.
    """

    def __init__(
        self, settings: LakeSettings, source: str, path: str, version: int | None = None
    ) -> None:
        """`version` is that of the source, the newest if None."""
        self._settings = settings
        self._from = source
        self._to = path
        self._source = open_table(settings, source, version)
        self._table = open_table(settings, path)

    @property
    def version(self) -> int:
        """The version that readers see."""
        return self._table.version()

    def link(self) -> None:
        """Bring the new files; nobody sees them yet."""
        for name in _files(self._source).keys() - _files(self._table).keys():
            target = f"{self._to}/{name}"
            if not is_there(self._settings, target):
                link(self._settings, f"{self._from}/{name}", target)

    def commit(self, *, whole: bool = False) -> int:
        """Let readers see them, if there is anything new; returns how many files are gone.

        Args:
            whole: whether all files are others, as where each of them may have a deletion vector.
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
        if not whole:  # else the transaction takes away all that is there
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
    """Statistics as Delta's log has them; instants are left out, as it rounds them."""
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
