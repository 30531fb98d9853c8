"""Runs the sinks that the topic file declares in `[export.<name>]`: tables to PostgreSQL.

An exporter follows the change feed of a Delta table, without Spark. A transaction of the database
contains the rows of some versions and the position, so the database always shows one version of the
table, and shows each exactly once. If the feed has a gap, or the table has been replaced, the
exporter compares all rows instead (a full diff).
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Sequence
from functools import partial
from hashlib import sha256
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import structlog
from deltalake.exceptions import DeltaError

from lake.observe import metrics
from lake.observe.lineage import Flow, table_at
from lake.streams.checkpoint import Running, claim
from lake.streams.supervisor import Stream
from lake.tables.arrow import CHANGE_TYPE, NEW, ArrowTable
from lake.tables.lake import Lake
from lake.topics.sink import Export
from lake.topics.sink_source import check_condition, source_of
from lakehouse.sinks.loop import Loop, LoopStream
from lakehouse.sinks.postgres.bookkeeping import Bookkeeping, Position
from lakehouse.sinks.postgres.database import (
    address_of,
    connect,
    explained,
    place_of,
    require_driver,
    shown,
)
from lakehouse.sinks.postgres.target import Target, open_target
from lakehouse.sinks.postgres.values import type_name
from lakehouse.sinks.postgres.writer import MOST_BYTES, MOST_ROWS, Writer
from pulsar_spark.errors import SettingsError
from silver.contract.visible import hiding_columns, shown_columns

if TYPE_CHECKING:
    import psycopg

    from lake.topics.condition import Condition

# Of one transaction. More changes are divided by versions, and else compared as a whole.
MOST = (500_000, 512 << 20)
MOST_VERSIONS = 1000
CANCEL_SECONDS = 5.0

log = structlog.get_logger()


def export_sinks(
    lake: Lake, sinks: Sequence[Export], *, available_now: bool = False
) -> list[Stream]:
    """The streams of sinks, which begin when they are kept.

    A sink whose table does not exist yet waits for it. With `available_now`, the streams end when
    the database shows the newest version of each table.

    Raises:
        SettingsError: the driver is not installed, or the address of a database cannot be read.
    """
    if sinks:
        require_driver()
    return [
        LoopStream(
            sink.label,
            lake.settings,
            partial(_start, lake, sink, available_now),
            Exporter(lake, sink).is_there,
            available_now=available_now,
            flow=_flow(lake, sink),
        )
        for sink in sinks
    ]


def _flow(lake: Lake, sink: Export) -> Flow:
    source = source_of(lake.topics, sink)
    table = lake.named(source.schema, source.table)
    return Flow((table_at(lake.settings, table),), (place_of(sink),))


def _start(lake: Lake, sink: Export, available_now: bool) -> Running:
    """Start an exporter.

    Raises:
        CheckpointError: another process runs the sink.
        DatabaseError: the database does not answer.
        SettingsError: the table of the lake or of the database does not fit the sink.
    """
    checkpoint = claim(lake.settings, sink.label)
    try:
        exporter = Exporter(lake, sink)
        try:
            exporter.open()
        except BaseException:
            exporter.close()
            raise
        loop = Loop(exporter.export, exporter.cancel, exporter.close, available_now=available_now)
        return loop.running(checkpoint)
    except BaseException:
        checkpoint.release()
        raise


class Exporter:
    """Brings the table of a sink in the database up to date with its table in the lake."""

    def __init__(self, lake: Lake, sink: Export) -> None:
        source = source_of(lake.topics, sink)
        self._sink = sink
        self._source = lake.named(source.schema, source.table)
        self._missing = source.missing
        self._where = self._condition()
        self._connection: psycopg.Connection[Any] | None = None
        self._target: Target | None = None
        self._seen: Position | None = None  # the last position that was read or written
        self._is_checked = False  # whether refused rows have been tried again since the start

    def is_there(self) -> bool:
        """Whether the table in the lake exists."""
        return self._source.exists()

    def open(self) -> None:
        """Connect to the database, and create or check the tables there.

        Raises:
            DatabaseError: the database does not answer.
            SettingsError: the table of the lake or of the database does not fit the sink.
        """
        schema, _, table = self._sink.table.partition(".")
        self._connection = connect(self._sink)
        with explained(self._sink), self._connection.transaction():
            self._books = Bookkeeping(self._connection, schema, table)
            self._books.create()
            self._books.lock()
            self._fit(self._source.arrow)
            if self._books.position() is None:
                self._refuse_other_rows()

    def cancel(self) -> None:
        """Cancel the statement that is running. Called by another thread."""
        import psycopg

        if self._connection is not None:
            with contextlib.suppress(psycopg.Error):  # the connection may be lost or closed
                self._connection.cancel_safe(timeout=CANCEL_SECONDS)

    def close(self) -> None:
        """Close the connection. A transaction that is not committed changes nothing."""
        if self._connection is not None:
            self._connection.close()

    def export(self) -> bool:
        """Bring the database to a newer version. Called again and again by the loop.

        Returns:
            Whether there was one.
        """
        if self._connection is None:
            self.open()
        connection = self._connection
        if connection is None:
            return False
        arrow = self._source.arrow
        if self._is_checked and self._seen is not None and self._is_at(self._seen, arrow):
            return False
        with explained(self._sink), connection.transaction():
            self._books.lock()
            target = self._fit(arrow)
            before = self._books.position()
            if before is not None and self._is_at(before, arrow) and not self._must_retry(before):
                self._seen, self._is_checked = before, True
                return False
            now = self._write(connection, target, arrow, before)
        self._seen, self._is_checked = now, True
        return True

    def _write(
        self,
        connection: psycopg.Connection[Any],
        target: Target,
        arrow: ArrowTable,
        before: Position | None,
    ) -> Position:
        """Write the changes since a position, or all rows, and move the position."""
        writer = Writer(connection, target)
        why = self._why_whole(arrow, before)
        changes = None
        if why is None and before is not None:
            changes = self._changes(target, arrow, before.version + 1)
            why = "the change feed cannot be read, or has too many changes in one version"
        if changes is not None:
            version, part = changes
            has_refused = before is not None and before.refused > 0
            rows = self._write_changes(writer, target, part, has_refused=has_refused)
        else:
            log.info("exporting all rows", sink=self._sink.name, because=why)
            version, rows = arrow.version, self._write_all(writer, target, arrow)
            self._books.forgive(None)
        self._books.note(writer.refused, target, version)
        now = Position(
            self._definition(target),
            self._source.full_name,
            arrow.id,
            version,
            self._source.written_at(version),
            self._books.count_refused(),
        )
        self._books.move(self._sink.name, now)
        self._report(writer, version, rows)
        return now

    def _report(self, writer: Writer, version: int, rows: int) -> None:
        metrics.exported(self._sink.label, rows)
        log.info("exported", sink=self._sink.name, version=version, rows=rows)
        if writer.refused:
            first = writer.refused[0]
            log.warning(
                "the database refused rows, which are in its table lakehouse_refused",
                sink=self._sink.name,
                rows=len(writer.refused),
                state=first.state,
            )

    def _write_all(self, writer: Writer, target: Target, arrow: ArrowTable) -> int:
        """Write all rows of a version, and delete those that it does not have.

        Raises:
            SettingsError: two rows have the same key.
        """
        count = 0
        for rows in self._all_rows(target, arrow):
            writer.keep_only(rows.select(list(target.key)))
            writer.apply(rows, rows.select(list(target.key)).slice(0, 0))
            count += rows.num_rows
        if writer.has_repeated_keys():  # each row would have replaced the one before
            message = (
                f"{self._sink.label}.key: several rows of {self._source.full_name} have the "
                f"same values in the key ({', '.join(target.key)})."
            )
            raise SettingsError(message, "Name all columns that identify a row.")
        writer.delete_others()
        return count

    def _write_changes(
        self, writer: Writer, target: Target, changes: pa.Table, *, has_refused: bool
    ) -> int:
        is_there = pc.is_in(changes[CHANGE_TYPE], pa.array(NEW))
        keys = changes.select(list(target.key))
        if has_refused:
            self._books.forgive(keys)
        rows = changes.select(target.columns.names).filter(is_there)
        writer.apply(rows, keys.filter(pc.invert(is_there)))
        return int(changes.num_rows)

    def _why_whole(self, arrow: ArrowTable, before: Position | None) -> str | None:
        """Why all rows must be compared; None if the feed since the position is enough."""
        if before is None:
            return "nothing has been exported yet"
        if before.definition != self._definition(self._fitting):
            return "the declaration of the sink or the columns have changed"
        if (before.source, before.table_id) != (self._source.full_name, arrow.id):
            return "the table is another one"
        if self._must_retry(before):
            return "refused rows are tried again"
        if arrow.version < before.version or self._has_other_past(before):
            return "the history of the table has changed"
        for version in range(before.version + 1, self._until(arrow, before) + 1):
            changes = self._source.changes(version)
            if changes is None or not changes.is_exact:
                known = "is no longer kept" if changes is None else "has deletion vectors only"
                return f"the change feed of version {version} {known}"
        return None

    def _has_other_past(self, before: Position) -> bool:
        return self._source.written_at(before.version) != before.written_at

    def _until(self, arrow: ArrowTable, before: Position) -> int:
        return min(arrow.version, before.version + MOST_VERSIONS)

    def _must_retry(self, before: Position) -> bool:
        return not self._is_checked and before.refused > 0

    def _changes(
        self, target: Target, arrow: ArrowTable, since: int
    ) -> tuple[int, pa.Table] | None:
        """The last change of each key in the next versions, as many as fit one transaction.

        Rows that are not sent are left out before and after each change. What is left is the feed
        of a table that has only the rows that are sent, so their keys identify rows.

        Returns:
            The last of the versions, and the changes. None if those of one version are too many, or
            if files of the feed are gone.
        """
        until = min(arrow.version, since + MOST_VERSIONS - 1)
        names = [*target.columns.names, *self._needed(arrow, target.columns.names)]
        while True:
            try:
                found = arrow.last_changes(since, until, names, target.key, MOST, self._is_shown)
            except (DeltaError, OSError, KeyError, pa.ArrowException) as error:
                log.warning("change feed not read", sink=self._sink.name, why=str(error)[:200])
                return None
            if found is not None:
                return until, found
            if until == since:
                return None
            until = since + (until - since) // 2

    def _all_rows(self, target: Target, arrow: ArrowTable) -> Iterator[pa.Table]:
        names = [*target.columns.names, *self._needed(arrow, target.columns.names)]
        pinned = self._source.arrow_at(arrow.version)
        waiting: list[pa.RecordBatch] = []
        count = size = 0
        for batch in pinned.batches(names):
            waiting.append(batch)
            count += batch.num_rows
            size += batch.nbytes
            if count >= MOST_ROWS or size >= MOST_BYTES:
                yield self._shown_rows(waiting, target)
                waiting, count, size = [], 0, 0
        if waiting:
            yield self._shown_rows(waiting, target)

    def _shown_rows(self, batches: list[pa.RecordBatch], target: Target) -> pa.Table:
        rows = pa.Table.from_batches(batches)
        return rows.filter(self._is_shown(rows)).select(target.columns.names)

    def _needed(self, arrow: ArrowTable, names: Sequence[str]) -> list[str]:
        """The columns that tell which rows readers see, as far as they are not exported."""
        hidden = hiding_columns(arrow.names)
        needed = [*hidden, *([self._missing] if self._missing else [])]
        if self._where:
            used = {*self._where.columns}
            needed += [name for name in arrow.names if name.lower() in used]
        return [name for name in dict.fromkeys(needed) if name not in names]

    def _is_shown(self, rows: pa.Table) -> pa.ChunkedArray:
        """For each row, whether it is sent: readers see it, and it meets the condition."""
        found = pa.chunked_array([pa.array([True] * rows.num_rows, pa.bool_())])
        for name in hiding_columns(self._source_names):
            kind = rows[name].type
            is_hidden = rows[name] if pa.types.is_boolean(kind) else pc.is_valid(rows[name])
            found = pc.and_(found, pc.invert(pc.fill_null(is_hidden, False)))
        if self._missing:
            found = pc.and_(found, pc.is_null(rows[self._missing]))
        if self._where:
            found = pc.and_(found, self._where.holds(rows))
        return found

    def _condition(self) -> Condition | None:
        """The condition of the sink. Its module is imported only if there is one."""
        if self._sink.where is None:
            return None
        from lake.topics.condition import Condition

        return Condition(self._sink.where)

    def _is_at(self, position: Position, arrow: ArrowTable) -> bool:
        return (
            position.definition == self._definition(self._fitting)
            and (position.table_id, position.version) == (arrow.id, arrow.version)
            and position.source == self._source.full_name
            and not self._has_other_past(position)
        )

    @property
    def _fitting(self) -> Target:
        if self._target is None:
            message = f"The sink {self._sink.name} has not been opened."
            raise SettingsError(message)
        return self._target

    def _fit(self, arrow: ArrowTable) -> Target:
        """The table in the database for the current columns of the table in the lake."""
        names = self._sink.columns or [
            *(name for name in arrow.names if name in self._sink.key),
            *(name for name in shown_columns(arrow.names) if name not in self._sink.key),
        ]
        for what, wanted in (("columns", self._sink.columns), ("key", self._sink.key)):
            for name in wanted:
                if name not in arrow.names:
                    message = (
                        f"{self._sink.label}.{what}: the table {self._source.full_name} has "
                        f"no column '{name}'. Its columns are {', '.join(arrow.names)}."
                    )
                    raise SettingsError(message)
        if self._where:
            self._check_condition(self._where, arrow)
        columns = arrow.schema(names)
        if self._target is None or self._target.columns != columns:
            if self._connection is None:
                message = f"The sink {self._sink.name} has no connection."
                raise SettingsError(message)
            self._target = open_target(self._connection, self._sink, columns)
        self._source_names = arrow.names
        return self._target

    def _check_condition(self, where: Condition, arrow: ArrowTable) -> None:
        try:
            check_condition(self._sink, arrow.names)
            where.check(arrow.schema(arrow.names))
        except ValueError as error:
            what = str(error).partition(" has a 'where' that ")[2] or str(error)
            place = f"{self._sink.label}.where"
            message = f"{place}: the condition on {self._source.full_name} {what}."
            raise SettingsError(message) from error

    def _definition(self, target: Target) -> str:
        """Checksum of what decides the content of the table in the database."""
        kinds = [(each.name, type_name(each.type)) for each in target.columns]
        given: list[object] = [self._sink.source, target.key, kinds]
        given += [self._sink.where] if self._sink.where else []
        return sha256(json.dumps(given).encode()).hexdigest()

    def _refuse_other_rows(self) -> None:
        """Check that a table without a position is empty, because a full diff would delete rows."""
        from psycopg import sql

        schema, _, table = self._sink.table.partition(".")
        query = sql.SQL("SELECT EXISTS (SELECT FROM {})").format(sql.Identifier(schema, table))
        found = self._connection.execute(query).fetchone() if self._connection else None
        if found and found[0]:
            message = (
                f"{self._sink.label}: the table {self._sink.table} of "
                f"{shown(address_of(self._sink))} holds rows that no sink has written, and the "
                "export would delete them."
            )
            raise SettingsError(message, "Empty the table (TRUNCATE), or name another one.")
