"""Appends to the tables that gold keeps about itself, and keeps them small.

Writers hold the lock of gold (`lock.py`), so nothing else writes at the same time.
"""

import datetime as dt
from collections.abc import Sequence
from typing import Any

import structlog
from deltalake.exceptions import DeltaError

from bronze.upkeep import FILE_SIZE, MANY_SMALL_FILES
from lake.tables.table import Table

log = structlog.get_logger()


def append_record(table: Table, rows: Sequence[dict[str, Any]], instant: str, days: int) -> None:
    """Append rows, and limit the size of the table if it has many small files.

    To limit the size, rows older than `days` are deleted, except the latest, small files
    are merged, and the files of old versions are deleted.

    Args:
        table: `gold.cuts` or `gold.runs`.
        rows: the rows, with all columns.
        instant: the column with the time of a row.
        days: how many days of rows and of old versions are kept.
    """
    direct = table.arrow
    direct.append(rows)
    if direct.files_below(FILE_SIZE) < MANY_SMALL_FILES:
        return
    latest = direct.latest(instant, [instant])
    end = dt.datetime.now(dt.timezone.utc) - dt.timedelta(days=days)
    try:
        if latest is not None:
            end = min(end, latest[instant])
            if direct.count(old := f"{instant} < '{end.isoformat()}'"):
                direct.delete(old)
        direct.compact(FILE_SIZE)
        direct.vacuum(days)
    except DeltaError as error:  # the rows are appended; the next append tries again
        log.warning("table not compacted", table=table.full_name, why=str(error))
