"""Appends to the tables that gold keeps about itself, and keeps them small.

Writers hold the lock of gold (`lock.py`), so nothing else writes at the same time.
"""

import datetime as dt
from collections.abc import Sequence
from typing import Any

import structlog
from deltalake.exceptions import DeltaError

from bronze.upkeep import FILE_SIZE, MANY_SMALL_FILES
from lake.settings.settings import LakeSettings
from lake.tables.arrow import DirectTable
from lake.tables.table import TableSpec

log = structlog.get_logger()


def append_record(
    table: TableSpec, settings: LakeSettings, rows: Sequence[dict[str, Any]], instant: str
) -> None:
    """Append rows, and limit the size of the table if it has many small files.

    To limit the size, rows older than `history_days` are deleted, except the latest, small files
    are merged, and the files of old versions are deleted.

    Args:
        table: `gold.cuts` or `gold.runs`.
        settings: the lake.
        rows: the rows, with all columns.
        instant: the column with the time of a row.
    """
    direct = DirectTable(table, settings)
    direct.append(rows)
    if direct.files_below(FILE_SIZE) < MANY_SMALL_FILES:
        return
    latest = direct.latest(instant, [instant])
    end = dt.datetime.now(dt.timezone.utc) - dt.timedelta(days=settings.history_days)
    try:
        if latest is not None:
            end = min(end, latest[instant])
            if direct.count(old := f"{instant} < '{end.isoformat()}'"):
                direct.delete(old)
        direct.compact(FILE_SIZE)
        direct.vacuum(settings.history_days)
    except DeltaError as error:  # the rows are appended; the next append tries again
        log.warning("table not compacted", table=table.full_name, why=str(error))
