"""Checkpoint identity (invariant 6): a checkpoint and its tables belong together.

Spark writes a batch to a table only once per checkpoint. With another checkpoint on the same table,
all messages would land again. With the same checkpoint on another table, many would be missing.
Each checkpoint therefore has an id of its own in `lakehouse.json`. Its tables have that id as a
property, and the file contains the tables' ids. A query whose ids do not match is refused at start.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import structlog
from filelock import FileLock, Timeout

from lake.durable import delete_durably, read_json, write_durably
from lake.settings.settings import LakeSettings
from lake.tables.format import mark_format
from lake.tables.lake import Lake
from lake.tables.spec import TableSpec
from lake.tables.table import Table
from pulsar_spark.errors import CheckpointError

if TYPE_CHECKING:  # `lakehouse status` runs without Spark
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from lake.streams.batches import Batches

WRITER = "lakehouse.checkpoint"
IDENTITY = "lakehouse.json"
READER = "reader"
LOCK = "lakehouse.lock"
UNFINISHED = "lakehouse.unfinished"
TOGETHER = (
    "Restore the table and the checkpoint from the same backup, or start over with "
    "`lakehouse reset`."
)

log = structlog.get_logger()


def checkpoint_id(settings: LakeSettings, query: str) -> str | None:
    """The id of a query's checkpoint; None if the query has not run yet.

    Raises:
        CheckpointError: the checkpoint's file is torn.
    """
    return identity(Path(settings.checkpoint_path(query))).get("checkpoint")


def reader_id(settings: LakeSettings, query: str) -> str | None:
    """The id of a query as a reader of its topic; None if the query has not run yet.

    It is that of the checkpoint, unless the lake was restored from a backup. A restored lake reads
    under an id of its own, so that it does not disturb the lake that was backed up.

    Raises:
        CheckpointError: the checkpoint's file is torn.
    """
    found = identity(Path(settings.checkpoint_path(query)))
    return found.get(READER) or found.get("checkpoint")


def identity(checkpoint: Path) -> dict[str, Any]:
    """The content of a checkpoint's `lakehouse.json`; empty if its query has not run yet.

    Raises:
        CheckpointError: the file is torn.
    """
    return read_json(checkpoint / IDENTITY, TOGETHER, CheckpointError) or {}


def interrupted(checkpoint: Path) -> str | None:
    """The command that must be run again before the query of a checkpoint may start.

    None if there is none. Empty if the note is torn, so that the command is unknown.
    """
    note = checkpoint / UNFINISHED
    return note.read_text().strip("\0") if note.exists() else None


@dataclass(frozen=True)
class BatchSpan:
    """A batch of a query: its id, and the offsets where it begins and ends, by source.

    A source that is new has no offset in `begins`.
    """

    id: int
    begins: Mapping[str, Any]
    ends: Mapping[str, Any]

    @property
    def moved(self) -> dict[str, tuple[Any | None, Any]]:
        """The first and last offset of each source that the batch reads; None for no first one."""
        spans = {name: (self.begins.get(name), end) for name, end in self.ends.items()}
        return {name: span for name, span in spans.items() if span[0] != span[1]}


class Checkpoint:
    """The claimed checkpoint of one query. It is released by `release` or when the process ends.

    reader: the id under which the query reads its topic, see `reader_id`.

    Raises:
        CheckpointError: the checkpoint's file is torn.
    """

    def __init__(self, path: Path, lock: FileLock) -> None:
        self.path = str(path)
        self.query = path.name
        self._file = path / IDENTITY
        self._lock = lock
        stored = identity(path)
        self.id: str = stored.get("checkpoint", uuid.uuid4().hex)
        self._generation: str = stored.get("generation", self.id)
        self._tables: dict[str, str] = stored.get("tables", {})
        self.reader: str = stored.get(READER, self.id)
        if not stored:
            self._save()

    def own(self, spark: SparkSession | None, table: Table) -> None:
        """Create a table for this checkpoint, or check that the table belongs to the checkpoint.

        Also adds declared columns that the table lacks. Without Spark, which parses the declared
        types, no table is created and no column is added.

        Raises:
            CheckpointError: table and checkpoint do not belong together.
            LakehouseError: the table's columns cannot be changed to those that are declared.
        """
        known = self._tables.get(table.full_name)
        there = table.exists()
        if known and not there:
            self._refuse(f"has written to the table {table.full_name}, which no longer exists")
        if spark is None and not there:
            return
        delta = table.log() if spark is None else table.create({WRITER: self.id})
        metadata = delta.metadata()
        writer = metadata.configuration.get(WRITER)
        if writer != self.id:
            self._refuse(
                f"is new, but the table {table.full_name} was written from another checkpoint "
                f"({writer or 'unknown'}), so a start would write everything twice"
            )
        if known and known != str(metadata.id):
            self._refuse(f"has written to a table other than the current {table.full_name}")
        if spark is not None and there and (added := table.evolve(spark, delta)):
            log.warning("columns added; NULL in older rows", table=table.full_name, columns=added)
        if known is None:
            self._tables[table.full_name] = str(metadata.id)
            self._save()

    def check_logs(self, tables: Sequence[Table]) -> None:
        """Check that the newest files of Spark's two logs are whole. A power cut may tear them.

        Raises:
            CheckpointError: a file is torn. The message says whether it may be deleted.
        """
        commit = newest_file(self._file.parent / "commits")
        if commit is not None and not is_whole(commit):
            self._refuse_torn(
                commit, "Delete it: the batch is then replayed, which changes nothing"
            )
        offset = newest_file(self._file.parent / "offsets")
        if offset is None or is_whole(offset):
            return
        if any(self._has_written(table, int(offset.name)) for table in tables):
            self._refuse_torn(
                offset,
                "The tables already contain its batch, which must not be planned again: restore "
                "the file from a backup, or start over with `lakehouse reset`",
            )
        self._refuse_torn(
            offset, "Delete it: its batch is not in the tables yet and is planned again"
        )

    def _has_written(self, table: Table, batch: int) -> bool:
        """Whether a table has a batch, under the query's transaction id or the one of `app_id`."""
        if not table.exists():
            return False
        delta = table.log()
        apps = query_id(self.path), self.app_id(table.spec)
        written = [delta.transaction_version(app) for app in apps]
        return any(version is not None and version >= batch for version in written)

    def app_id(self, table: TableSpec) -> str:
        """The Delta `txnAppId` of batches that a table does not record under the query's own id."""
        return f"{self._generation}.{table.full_name}"

    def begin_generation(self) -> None:
        """Change the ids from `app_id`, so that tables accept batch numbers that they have already.

        Called when a query is moved, because its batch numbers may then repeat.
        """
        self._generation = uuid.uuid4().hex
        self._save()

    def expect(self, command: str | None) -> None:
        """Let only this command claim the checkpoint from now on; None lets every command again.

        Called before a command replaces tables, so that it must be completed if it is interrupted.
        """
        note = self._file.parent / UNFINISHED
        if command is None:
            delete_durably(note)
        else:
            write_durably(note, command)

    def span(self, batch: int) -> BatchSpan:
        """Where a planned batch begins and ends, read from Spark's log of offsets."""
        offsets = self._file.parent / "offsets"
        before = offsets / str(batch - 1)
        begins = source_offsets(before.read_text()) if before.exists() else {}
        return BatchSpan(batch, begins, source_offsets((offsets / str(batch)).read_text()))

    @property
    def has_started(self) -> bool:
        """Whether the query of this checkpoint has been started before."""
        return (self._file.parent / "metadata").exists()

    @property
    def unfinished(self) -> int | None:
        """The batch that was planned but not committed; None if there is none."""
        planned, done = (newest_file(self._file.parent / log) for log in ("offsets", "commits"))
        if planned is None or (done is not None and done.name == planned.name):
            return None
        return int(planned.name)

    def release(self) -> None:
        """Release the lock, so that another driver can claim the checkpoint."""
        self._lock.release()

    def _save(self) -> None:
        stored = {"checkpoint": self.id, "generation": self._generation, "tables": self._tables}
        own = {} if self.reader == self.id else {READER: self.reader}
        write_durably(self._file, json.dumps({**stored, **own}, indent=1))

    def _refuse_torn(self, file: Path, remedy: str) -> None:
        message = (
            f"{file} is torn, perhaps by a power cut, so Spark cannot continue from it. {remedy}."
        )
        raise CheckpointError(message)

    def _refuse(self, what: str) -> None:
        message = f"Checkpoint {self.path} {what}."
        raise CheckpointError(message, TOGETHER)


def claim(settings: LakeSettings, query: str, command: str | None = None) -> Checkpoint:
    """Claim the checkpoint of a query for this process. The lock ends with the process.

    Args:
        settings: the lake.
        query: the name of the query.
        command: the command that is being run, if it is one that may have been interrupted before.

    Raises:
        CheckpointError: another process runs the query, or another command was interrupted.
    """
    path = Path(settings.checkpoint_path(query))
    path.mkdir(parents=True, exist_ok=True)
    lock = FileLock(path / LOCK, thread_local=False)  # another thread may release it
    try:
        lock.acquire(timeout=0)
    except Timeout as error:
        message = (
            f"Query {query} already runs in another process on the checkpoint {path}; two writers "
            "would corrupt it. Stop the other process first (`lakehouse status` shows what runs)."
        )
        raise CheckpointError(message) from error
    try:
        _refuse_interrupted(path, command)
        return Checkpoint(path, lock)
    except BaseException:
        lock.release()
        raise


def _refuse_interrupted(path: Path, command: str | None) -> None:
    expected = interrupted(path)
    if expected is None or expected == command or (not expected and command):
        return
    named = f"`{expected}`" if expected else "A command that replaces tables"
    again = "it" if expected else "the last such command (forget, replay or savepoint restore)"
    message = (
        f"{named} was interrupted, so the tables of query {path.name} are incomplete. "
        f"Run {again} again to complete them."
    )
    raise CheckpointError(message)


def claim_tables(
    spark: SparkSession | None, lake: Lake, query: str, specs: Sequence[TableSpec]
) -> Checkpoint:
    """Claim a query's checkpoint, and check that its tables belong to it.

    Tables that do not exist are created, and declared columns that a table lacks are added. Without
    Spark, the tables stay as they are.

    Raises:
        CheckpointError: the checkpoint is in use, is torn, or does not belong to these tables.
        FormatError: a newer release has written the lake.
        LakehouseError: a table's columns cannot be changed to those that are declared.
    """
    mark_format(lake.settings)
    checkpoint = claim(lake.settings, query)
    tables = [lake.table(spec) for spec in specs]
    try:
        checkpoint.check_logs(tables)
        for table in tables:
            checkpoint.own(spark, table)
    except BaseException:
        checkpoint.release()
        raise
    return checkpoint


def source_offsets(text: str) -> dict[str, Any]:
    """Parse a file of Spark's offset log.

    Each offset is JSON on a line of its own, after the source's name and a colon if sources have
    names.

    Returns:
        The offset of each source, by its name, or by its number from 0 if it has no name. A source
        without an offset yet is left out.

    Raises:
        ValueError: the file is torn.
    """
    _, metadata, *lines = text.splitlines()
    json.loads(metadata)
    if not lines:
        raise ValueError(text)
    found = {}
    for number, line in enumerate(lines):
        name, offset = line[: line.find("{")], line[max(line.find("{"), 0) :]
        if not line.endswith("-"):
            found[name.removesuffix(":") or str(number)] = json.loads(offset)
    return found


def query_id(checkpoint: str | Path) -> str:
    """Spark's own id of the query of a checkpoint. The query must have been started before.

    Raises:
        CheckpointError: the file that contains the id is torn or gone.
    """
    stored = read_json(Path(checkpoint) / "metadata", TOGETHER, CheckpointError)
    if stored is None:
        what = f"{checkpoint} has lost the file `metadata`, which Spark wrote."
        raise CheckpointError(what, TOGETHER)
    return str(stored["id"])


def newest_file(folder: Path) -> Path | None:
    """The file of the last batch in one of Spark's two logs; None if there is none."""
    batches = [file for file in folder.glob("*") if file.name.isdigit()]
    return max(batches, key=lambda file: int(file.name), default=None)


def write_log(file: Path, content: str) -> None:
    """Write or replace one of Spark's files in a checkpoint or in one of its two logs."""
    delete_durably(file.with_name(f".{file.name}.crc"))  # Hadoop's checksum of the old content
    write_durably(file, content)


def has_planned(checkpoint: Path) -> bool:
    """Whether a folder is a checkpoint whose query has planned a batch."""
    return (checkpoint / "offsets").exists()


def newest_batch(settings: LakeSettings, query: str) -> int | None:
    """The last batch that a query has planned; None if there is none."""
    planned = newest_file(Path(settings.checkpoint_path(query)) / "offsets")
    return None if planned is None else int(planned.name)


def planned_offsets(settings: LakeSettings, query: str, batch: int) -> dict[str, Any]:
    """The offset of each source at which a planned batch of a query ends; see `source_offsets`.

    Empty if the file is torn, which `Checkpoint.check_logs` refuses.
    """
    file = Path(settings.checkpoint_path(query)) / "offsets" / str(batch)
    return source_offsets(file.read_text()) if is_whole(file) else {}


def last_commit(settings: LakeSettings, query: str) -> Path | None:
    """The offset file of the last finished batch of a query; None if there is none."""
    checkpoint = Path(settings.checkpoint_path(query))
    commit = newest_file(checkpoint / "commits")
    return None if commit is None else checkpoint / "offsets" / commit.name


def next_to_read(settings: LakeSettings, table: str) -> list[int | None]:
    """The version that each query which streams a Delta table reads next.

    The last finished batch of a query counts. None for a query that has not finished one, or that
    has not finished the rows of its first version.

    Args:
        settings: the lake.
        table: the id of the table.
    """
    found: list[int | None] = []
    for checkpoint in settings.checkpoints_dir.glob("*"):
        if not has_planned(checkpoint):
            continue
        commit = last_commit(settings, checkpoint.name)
        file = commit or newest_file(checkpoint / "offsets")
        if file is None:
            continue
        if not is_whole(file):
            found.append(None)
            continue
        for each in source_offsets(file.read_text()).values():
            if isinstance(each, dict) and each.get("reservoirId") == table:
                is_known = commit is not None and not each.get("isStartingVersion")
                found.append(each["reservoirVersion"] if is_known else None)
    return found


def is_whole(file: Path) -> bool:
    """Whether a file of Spark's logs is complete. A power cut may tear it."""
    try:
        if file.parent.name == "offsets":
            source_offsets(file.read_text())
        else:
            json.loads(file.read_text().splitlines()[1])
    except (ValueError, IndexError):
        return False
    return True


@dataclass(frozen=True)
class Running:
    """A started query and the checkpoint that it has claimed.

    batches: the function that runs its batches.
    repeats: the batch that was unfinished at the start, which the query runs again.
    """

    query: StreamingQuery
    checkpoint: Checkpoint
    batches: Batches
    repeats: int | None = None

    def stop(self) -> None:
        """Stop the query and release its checkpoint."""
        self.query.stop()
        self.checkpoint.release()


def start_query(
    rows: DataFrame,
    run_batch: Callable[[DataFrame, BatchSpan], None],
    trigger: str,
    checkpoint: Checkpoint,
    *,
    available_now: bool,
) -> Running:
    """Start a query that calls a function for each batch, on its claimed checkpoint.

    With `available_now`, the query ends when it has caught up. Otherwise it begins a batch every
    `trigger`, such as "1 second", if there is new data.
    """
    from lake.streams.batches import Batches

    batches = Batches(lambda rows, batch: run_batch(rows, checkpoint.span(batch)))
    writer = rows.writeStream.queryName(checkpoint.query).foreachBatch(batches)
    writer = writer.option("checkpointLocation", checkpoint.path)
    if available_now:
        writer = writer.trigger(availableNow=True)
    else:
        writer = writer.trigger(processingTime=trigger)
    repeats = checkpoint.unfinished
    return Running(writer.start(), checkpoint, batches, repeats)
