"""Checkpoint identity (invariant 6): a checkpoint and its tables belong together.

Spark replays a batch into a table only once per checkpoint. With another checkpoint on the same
table all would land again; with the same checkpoint on another table much would be missing. So a
checkpoint carries an id of its own in `lakehouse.json`, its tables carry that id as a property, and
the file names the tables' ids. Anything else is refused at start.
"""

import fcntl
import json
import os
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from bronze.errors import CheckpointError
from bronze.settings import LakeSettings
from bronze.tables import TableSpec

WRITER = "lakehouse.checkpoint"


IDENTITY = "lakehouse.json"


def checkpoint_id(settings: LakeSettings, query: str) -> str | None:
    """The id of a query's checkpoint, None if it has not run yet."""
    file = Path(settings.checkpoint_path(query)) / IDENTITY
    return json.loads(file.read_text())["checkpoint"] if file.exists() else None


class Checkpoint:
    """The claimed checkpoint of one query; released when the process ends or by `release`."""

    def __init__(self, path: Path, lock: IO[str]) -> None:
        self.path = str(path)
        self._file = path / IDENTITY
        self._lock = lock
        stored = json.loads(self._file.read_text()) if self._file.exists() else {}
        self.id: str = stored.get("checkpoint", uuid.uuid4().hex)
        self._tables: dict[str, str] = stored.get("tables", {})
        self._save()

    def own(self, spark: SparkSession, settings: LakeSettings, table: TableSpec) -> None:
        """Create the table for this checkpoint, or check that it is its own.

        Raises:
            CheckpointError: table and checkpoint do not belong together.
        """
        known = self._tables.get(table.full_name)
        there = table.exists(settings)
        if known and not there:
            self._refuse(f"has written to the table {table.full_name}, which is gone")
        delta = table.create(spark, settings, {WRITER: self.id})
        metadata = delta.metadata()
        writer = metadata.configuration.get(WRITER)
        if writer != self.id:
            self._refuse(
                f"is new, but the table {table.full_name} was written from another checkpoint "
                f"({writer or 'unknown'}): starting would land everything twice"
            )
        if known and known != str(metadata.id):
            self._refuse(f"has written to another table than the {table.full_name} of today")
        self._tables[table.full_name] = str(metadata.id)
        self._save()

    def release(self) -> None:
        """Let another driver claim it."""
        self._lock.close()

    def _save(self) -> None:
        content = json.dumps({"checkpoint": self.id, "tables": self._tables}, indent=1)
        draft = self._file.with_suffix(".tmp")
        draft.write_text(content)
        os.replace(draft, self._file)

    def _refuse(self, what: str) -> None:
        message = (
            f"Checkpoint {self.path} {what}. Put the table and checkpoint that belong together "
            "back in place (a backup of one moment), or start over with `lakehouse reset`."
        )
        raise CheckpointError(message)


def claim(settings: LakeSettings, query: str) -> Checkpoint:
    """Claim the checkpoint of a query for this process; the lock ends with the process.

    Raises:
        CheckpointError: another process runs the query.
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
    return Checkpoint(path, lock)


def claim_tables(
    spark: SparkSession, settings: LakeSettings, query: str, tables: Sequence[TableSpec]
) -> Checkpoint:
    """Claim a query's checkpoint and see that all its tables are its own."""
    checkpoint = claim(settings, query)
    try:
        for table in tables:
            checkpoint.own(spark, settings, table)
    except BaseException:
        checkpoint.release()
        raise
    return checkpoint


@dataclass(frozen=True)
class Running:
    """A started query and the checkpoint it holds."""

    query: StreamingQuery
    checkpoint: Checkpoint

    def stop(self) -> None:
        """Stop the query and release its checkpoint."""
        self.query.stop()
        self.checkpoint.release()
