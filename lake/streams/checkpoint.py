"""Checkpoint identity (invariant 6): a checkpoint and its tables belong together.

Spark replays a batch into a table only once per checkpoint. With another checkpoint on the same
table all would land again; with the same checkpoint on another table much would be missing. So a
checkpoint carries an id of its own in `lakehouse.json`, its tables carry that id as a property, and
the file names the tables' ids. Anything else is refused at start.
"""

from __future__ import annotations

import fcntl
import json
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import structlog

from lake.durable import delete_durably, read_json, write_durably
from lake.settings.settings import LakeSettings
from lake.tables.storage import open_table
from lake.tables.table import TableSpec
from pulsar_spark.errors import CheckpointError

if TYPE_CHECKING:  # `lakehouse status` does without Spark
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from lake.streams.failures import RunBatch

WRITER = "lakehouse.checkpoint"
IDENTITY = "lakehouse.json"
UNFINISHED = "lakehouse.unfinished"
TOGETHER = (
    "Put the table and checkpoint that belong together back in place (a backup of one moment), or "
    "start over with `lakehouse reset`."
)

log = structlog.get_logger()


def checkpoint_id(settings: LakeSettings, query: str) -> str | None:
    """The id of a query's checkpoint, None if it has not run yet.

    Raises:
        CheckpointError: its file is torn.
    """
    return identity(Path(settings.checkpoint_path(query))).get("checkpoint")


def identity(checkpoint: Path) -> dict[str, Any]:
    """What the folder of a checkpoint says of itself; nothing if its query has not run yet.

    Raises:
        CheckpointError: the file is torn.
    """
    return read_json(checkpoint / IDENTITY, TOGETHER, CheckpointError) or {}


def interrupted(checkpoint: Path) -> str | None:
    """The command that must be run again before the query of a checkpoint may start, if any.

    Empty if the note is torn, so that it does not say which command it was.
    """
    note = checkpoint / UNFINISHED
    return note.read_text().strip("\0") if note.exists() else None


class Checkpoint:
    """The claimed checkpoint of one query; released when the process ends or by `release`.

    Raises:
        CheckpointError: its file is torn.
    """

    def __init__(self, path: Path, lock: IO[str]) -> None:
        self.path = str(path)
        self.query = path.name
        self._file = path / IDENTITY
        self._lock = lock
        stored = identity(path)
        self.id: str = stored.get("checkpoint", uuid.uuid4().hex)
        self._generation: str = stored.get("generation", self.id)
        self._tables: dict[str, str] = stored.get("tables", {})
        if not stored:
            self._save()

    def own(self, spark: SparkSession, settings: LakeSettings, table: TableSpec) -> None:
        """Create the table for this checkpoint, or check that it is its own.

        Raises:
            CheckpointError: table and checkpoint do not belong together.
            LakehouseError: the table's columns cannot become those that are declared.
        """
        known = self._tables.get(table.full_name)
        there = table.exists(settings)
        if known and not there:
            self._refuse(f"has written to the table {table.full_name}, which is gone")
        delta = table.create(settings, {WRITER: self.id})
        metadata = delta.metadata()
        writer = metadata.configuration.get(WRITER)
        if writer != self.id:
            self._refuse(
                f"is new, but the table {table.full_name} was written from another checkpoint "
                f"({writer or 'unknown'}): starting would land everything twice"
            )
        if known and known != str(metadata.id):
            self._refuse(f"has written to another table than the {table.full_name} of today")
        if there and (added := table.evolve(spark, settings, delta)):
            log.warning("columns added; NULL in older rows", table=table.full_name, columns=added)
        if known is None:
            self._tables[table.full_name] = str(metadata.id)
            self._save()

    def check_logs(self, settings: LakeSettings, tables: Sequence[TableSpec]) -> None:
        """See that the newest files of Spark's two logs are whole: a power cut may tear them.

        Raises:
            CheckpointError: one is torn; says whether it may be deleted.
        """
        commit = newest_file(self._file.parent / "commits")
        if commit is not None and not is_whole(commit):
            self._refuse_torn(commit, "Delete it: the batch is replayed, which changes nothing")
        offset = newest_file(self._file.parent / "offsets")
        if offset is None or is_whole(offset):
            return
        if any(self._has_written(settings, table, int(offset.name)) for table in tables):
            self._refuse_torn(
                offset,
                "The tables have its batch already, so it must not be planned anew: put the file "
                "back from a backup, or start over with `lakehouse reset`",
            )
        self._refuse_torn(offset, "Delete it: its batch was not written yet and is planned anew")

    def _has_written(self, settings: LakeSettings, table: TableSpec, batch: int) -> bool:
        """Whether a table has a batch, by the transaction id of its query or of its own."""
        if not table.exists(settings):
            return False
        delta = open_table(settings, table.path(settings))
        apps = query_id(self.path), self.app_id(table)
        written = [delta.transaction_version(app) for app in apps]
        return any(version is not None and version >= batch for version in written)

    def app_id(self, table: TableSpec) -> str:
        """By which a table knows batches, where the query's own id does not."""
        return f"{self._generation}.{table.full_name}"

    def begin_generation(self) -> None:
        """Begin anew with the numbers of batches: tables shall not know those that come."""
        self._generation = uuid.uuid4().hex
        self._save()

    def expect(self, command: str | None) -> None:
        """From now on, refuse to be claimed but by a command that must go on; None: by all."""
        note = self._file.parent / UNFINISHED
        if command is None:
            delete_durably(note)
        else:
            write_durably(note, command)

    def ends(self, batch: int) -> dict[str, Any]:
        """The offsets that a planned batch ends at, by source."""
        return source_offsets((self._file.parent / "offsets" / str(batch)).read_text())

    def moved(self, batch: int) -> dict[str, tuple[Any | None, Any]]:
        """The sources that a planned batch reads from, with the offsets between which it does."""
        before = self._file.parent / "offsets" / str(batch - 1)
        begins = source_offsets(before.read_text()) if before.exists() else {}
        spans = {name: (begins.get(name), end) for name, end in self.ends(batch).items()}
        return {name: span for name, span in spans.items() if span[0] != span[1]}

    @property
    def unfinished(self) -> int | None:
        """The batch that was planned and not committed, if there is one."""
        planned, done = (newest_file(self._file.parent / log) for log in ("offsets", "commits"))
        if planned is None or (done is not None and done.name == planned.name):
            return None
        return int(planned.name)

    def release(self) -> None:
        """Let another driver claim it."""
        self._lock.close()

    def _save(self) -> None:
        stored = {"checkpoint": self.id, "generation": self._generation, "tables": self._tables}
        write_durably(self._file, json.dumps(stored, indent=1))

    def _refuse_torn(self, file: Path, remedy: str) -> None:
        message = f"{file} is torn, as after a power cut: Spark cannot go on from it. {remedy}."
        raise CheckpointError(message)

    def _refuse(self, what: str) -> None:
        message = f"Checkpoint {self.path} {what}. {TOGETHER}"
        raise CheckpointError(message)


def claim(settings: LakeSettings, query: str, command: str | None = None) -> Checkpoint:
    """Claim the checkpoint of a query for this process; the lock ends with the process.

    Args:
        settings: where the lake is.
        query: name of the query.
        command: what is being run, if it may have been interrupted before.

    Raises:
        CheckpointError: another process runs the query, or another command was interrupted.
    """
    path = Path(settings.checkpoint_path(query))
    path.mkdir(parents=True, exist_ok=True)
    lock = (path / "lakehouse.lock").open("a+")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        lock.close()
        message = (
            f"Query {query} already runs in another process on the checkpoint {path}; two writers "
            "would corrupt it. Stop the other one first (`lakehouse status` shows what runs)."
        )
        raise CheckpointError(message) from error
    try:
        _refuse_interrupted(path, command)
        return Checkpoint(path, lock)
    except BaseException:
        lock.close()
        raise


def _refuse_interrupted(path: Path, command: str | None) -> None:
    expected = interrupted(path)
    if expected is None or expected == command or (not expected and command):
        return
    named = f"`{expected}`" if expected else "A command that replaces tables"
    again = "it" if expected else "the command that ran last (forget, replay or savepoint restore)"
    message = (
        f"{named} was interrupted, and the tables of query {path.name} are not whole. "
        f"Run {again} again: it goes on."
    )
    raise CheckpointError(message)


def claim_tables(
    spark: SparkSession, settings: LakeSettings, query: str, tables: Sequence[TableSpec]
) -> Checkpoint:
    """Claim a query's checkpoint and see that all its tables are its own.

    Raises:
        CheckpointError: it is in use, torn, or not of these tables.
    """
    checkpoint = claim(settings, query)
    try:
        checkpoint.check_logs(settings, tables)
        for table in tables:
            checkpoint.own(spark, settings, table)
    except BaseException:
        checkpoint.release()
        raise
    return checkpoint


def source_offsets(text: str) -> dict[str, Any]:
    """The offsets of the sources in a file of Spark's offset log, by name, or number from 0.

    Each is JSON on a line of its own; behind the source's name and a colon where sources have one.
    A source that has nothing yet is left out.

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
    """Spark's own id of the query of a checkpoint, which has begun.

    Raises:
        CheckpointError: the file that has it is torn or gone.
    """
    stored = read_json(Path(checkpoint) / "metadata", TOGETHER, CheckpointError)
    if stored is None:
        message = f"{checkpoint} has no file `metadata`, which Spark made there. {TOGETHER}"
        raise CheckpointError(message)
    return str(stored["id"])


def newest_file(folder: Path) -> Path | None:
    """The file of the last batch in one of Spark's two logs, None if there is none."""
    batches = [file for file in folder.glob("*") if file.name.isdigit()]
    return max(batches, key=lambda file: int(file.name), default=None)


def write_log(file: Path, content: str) -> None:
    """Write or replace a file of Spark's, in its folder for a checkpoint or one of its two logs."""
    delete_durably(file.with_name(f".{file.name}.crc"))  # Hadoop's checksum of the old one
    write_durably(file, content)


def has_planned(checkpoint: Path) -> bool:
    """Whether the folder is a checkpoint whose query has planned a batch."""
    return (checkpoint / "offsets").exists()


def newest_batch(settings: LakeSettings, query: str) -> int | None:
    """The last batch that a query has planned, None if there is none."""
    planned = newest_file(Path(settings.checkpoint_path(query)) / "offsets")
    return None if planned is None else int(planned.name)


def last_commit(settings: LakeSettings, query: str) -> Path | None:
    """The offsets of the last finished batch of a query, None if there is none."""
    checkpoint = Path(settings.checkpoint_path(query))
    commit = newest_file(checkpoint / "commits")
    return None if commit is None else checkpoint / "offsets" / commit.name


def is_whole(file: Path) -> bool:
    """Whether a file of Spark's logs can be read to its end, which a power cut may prevent."""
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
    """A started query and the checkpoint it holds.

    repeats: the batch that was under way when it was started, which it runs again.
    """

    query: StreamingQuery
    checkpoint: Checkpoint
    repeats: int | None = None

    def stop(self) -> None:
        """Stop the query and release its checkpoint."""
        self.query.stop()
        self.checkpoint.release()


def start_query(
    rows: DataFrame,
    run_batch: RunBatch,
    trigger: str,
    checkpoint: Checkpoint,
    *,
    available_now: bool,
) -> Running:
    """Start a query that runs a function for each batch, on its claimed checkpoint.

    With `available_now` it ends when it has caught up, else it begins a batch each `trigger`, such
    as "1 second", if there is something new.
    """
    from lake.streams.failures import interruptible

    writer = rows.writeStream.queryName(checkpoint.query).foreachBatch(interruptible(run_batch))
    writer = writer.option("checkpointLocation", checkpoint.path)
    if available_now:
        writer = writer.trigger(availableNow=True)
    else:
        writer = writer.trigger(processingTime=trigger)
    repeats = checkpoint.unfinished
    return Running(writer.start(), checkpoint, repeats)
