"""Maintains a table between two batches of the query that writes it (invariant 5).

One batch a second makes 86,400 files a day. Small files are rewritten as larger ones with the same
rows (Delta's `dataChange=false`), so streams that read the table do not see the rows again. A
stream that has not come this far yet still reads the small files, so they are kept until it has.
"""

import datetime as dt
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import structlog

from bronze.expiry import expire_messages
from lake.streams.checkpoint import Checkpoint, next_to_read
from lake.tables.arrow import ArrowTable
from lake.tables.lake import Lake
from lake.tables.storage import commit_file, written_at
from lake.tables.table import Table

FILE_SIZE = 32 << 20  # smaller files are rewritten, so a row is copied a few times in its life
MANY_SMALL_FILES = 32
EVERY_BATCHES = 500
DAY = 24 * 3600.0
DONE = "lakehouse.vacuumed"

log = structlog.get_logger()


class Daily:
    """A task that is due once a day. A file in the checkpoint records when it was last done."""

    def __init__(self, checkpoint: Checkpoint) -> None:
        self._done = Path(checkpoint.path) / DONE

    def is_due(self) -> bool:
        """Whether the task was last done more than a day ago."""
        if not self._done.exists():
            self._done.touch()  # a new lake has no old files
        return time.time() - self._done.stat().st_mtime > DAY

    def done(self) -> None:
        """Record that the task has been done."""
        self._done.touch()


class BronzeUpkeep:
    """Maintains the bronze table of a topic. The topic's query calls `run` after each batch."""

    def __init__(self, lake: Lake, table: Table, checkpoint: Checkpoint) -> None:
        self._lake = lake
        self._topic = lake.topics.topics.get(table.spec.name)
        self._table = table
        self._daily = Daily(checkpoint)

    def run(self, batch_id: int) -> None:
        """Compact small files if there are many.

        Once a day, also delete messages that are too old, and files that no reader needs. Messages
        are deleted first, because silver has not read files that were just compacted.
        """
        is_due = self._daily.is_due()
        if is_due and self._topic:
            expire_messages(self._lake, self._topic, dt.datetime.now(dt.timezone.utc))
        if batch_id % EVERY_BATCHES == 0:
            compact(self._table.arrow, self._table.full_name)
        if is_due:
            if self._readers_are_near():
                deleted = self._table.arrow.vacuum(self._lake.settings.history_days)
                log.info("vacuumed", table=self._table.full_name, files=deleted)
            else:
                log.warning(
                    "old files are kept, because a query that reads the table is at least a day "
                    "behind",
                    table=self._table.full_name,
                )
            self._daily.done()

    def _readers_are_near(self) -> bool:
        """Whether all queries that read the table have reached versions of the last 24 hours."""
        newest = self._table.newest_version()
        oldest = time.time() - DAY
        for version in next_to_read(self._lake.settings, self._table.arrow.id):
            if version is None:
                return False
            if version > newest:  # the query has read all versions
                continue
            written = written_at(self._lake.settings, commit_file(self._table.path, version))
            if written is None or written < oldest:
                return False
        return True


def compact(table: ArrowTable, name: str, rewrite: Callable[[], object] | None = None) -> None:
    """Rewrite small files as larger ones, if there are many.

    Args:
        table: the table.
        name: its name, for the log.
        rewrite: used instead of delta-rs, which does not support deletion vectors.
    """
    small = table.files_below(FILE_SIZE)
    if small >= MANY_SMALL_FILES:
        begun = time.monotonic()
        (rewrite or partial(table.compact, FILE_SIZE))()
        took = round(time.monotonic() - begun, 1)
        log.info("compacted", table=name, small_files=small, seconds=took)
