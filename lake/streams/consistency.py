"""Checks that checkpoints and tables belong together (invariant 6). Changes nothing."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from lake.streams.checkpoint import (
    TOGETHER,
    WRITER,
    identity,
    interrupted,
    is_whole,
    newest_file,
    query_id,
)
from lake.tables.lake import Lake
from lake.tables.spec import TableSpec
from lake.tables.table import Table
from pulsar_spark.errors import CheckpointError


def disagreements(lake: Lake, query: str, tables: Sequence[TableSpec]) -> Iterator[tuple[str, str]]:
    """Find what would stop a query at its next start. The query may be running.

    Called by `lakehouse doctor`.

    Yields:
        A problem and its remedy. A torn file ends the search.
    """
    try:
        yield from _disagreements(lake, query, tables)
    except CheckpointError as error:
        yield error.what, error.remedy


def _disagreements(
    lake: Lake, query: str, tables: Sequence[TableSpec]
) -> Iterator[tuple[str, str]]:
    folder = Path(lake.settings.checkpoint_path(query))
    own = identity(folder)
    command = interrupted(folder)
    if command is not None:
        named = f"`{command}`" if command else "a command that replaces tables"
        yield f"{named} was interrupted", "Run it again to complete it."
    for log in ("offsets", "commits"):
        newest = newest_file(folder / log)
        if newest is not None and not is_whole(newest):
            yield f"{newest} is torn", "Start the stream to learn whether you can delete the file."
    # Read before the tables: while the query runs, a table may get ahead, but never fall behind.
    commit = newest_file(folder / "commits")
    for table in tables:
        for what in _apart(lake.table(table), own, folder, commit):
            yield what, TOGETHER


def _apart(
    table: Table,
    own: dict[str, Any],
    folder: Path,
    commit: Path | None,
) -> Iterator[str]:
    known = own.get("tables", {}).get(table.full_name)
    if not table.exists():
        if known:
            yield f"the table {table.full_name} no longer exists"
        return
    delta = table.log()
    metadata = delta.metadata()
    if metadata.configuration.get(WRITER) != own.get("checkpoint"):
        yield f"the table {table.full_name} was written from another checkpoint"
    elif known and known != str(metadata.id):
        yield f"{table.full_name} is not the table to which the checkpoint has written"
    elif commit is not None and (folder / "metadata").exists():
        # Only bronze writes the query's id to the table, and a query that was moved has none yet.
        written = delta.transaction_version(query_id(folder))
        if written is not None and written < int(commit.name):
            yield (
                f"the checkpoint has finished batch {commit.name}, but the table "
                f"{table.full_name} ends with batch {written}, so it is older than the checkpoint"
            )
