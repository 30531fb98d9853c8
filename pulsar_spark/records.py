"""Tables of records that tasks and drivers append to directly: losses, incomplete messages.

Each append adds a file, so a writer that finds many files merges them into one. Several processes
may write at a time. If two of them merge at once, one gives up and leaves the merge to the next
writer.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # every worker loads this module, but few write records
    from collections.abc import Callable, Mapping

    import pyarrow as pa
    from deltalake import DeltaTable

MANY_FILES = 32
KEPT_DAYS = 7  # old versions, and the log


def append_record(
    path: str,
    rows: pa.Table,
    storage: Mapping[str, str],
    drop_old: Callable[[DeltaTable], object] | None = None,
) -> None:
    """Append rows to a table, which is created if it does not exist.

    Args:
        path: a folder or an address.
        rows: the rows, with all columns of the table.
        storage: options that delta-rs needs to reach the address.
        drop_old: deletes rows that nobody needs any more. Called before files are merged.
    """
    import deltalake

    if "://" not in path:
        Path(path).parent.mkdir(parents=True, exist_ok=True)
    kept = {"delta.logRetentionDuration": f"interval {KEPT_DAYS} days"}
    options = dict(storage)
    deltalake.write_deltalake(
        path, rows, mode="append", storage_options=options, configuration=kept
    )
    table = deltalake.DeltaTable(path, storage_options=options)
    if len(table.file_uris()) < MANY_FILES:
        return
    with suppress(deltalake.exceptions.DeltaError):  # another writer does the same
        if drop_old:
            drop_old(table)
        table.optimize.compact()
        table.vacuum(KEPT_DAYS * 24, dry_run=False)
