"""Runs the imports that the topic file declares in `[import.<name>]`: PostgreSQL to topics.

An importer compares a table with what its topic holds, again and again, and publishes what differs.
From the topic on, the rows are those of an ordinary changelog, so nothing else of the lake depends
on when the table was read.

Order: the importer is the only producer of its topic, and the broker sees to that. It begins by
reading the topic to its end, so it knows of each message that a killed predecessor has sent, and
compares only afterwards. A key therefore never gets an older value after a newer one.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import structlog

from lake.observe.lineage import Flow, topic_places
from lake.streams.checkpoint import Running, claim
from lake.streams.supervisor import Stream
from lake.tables.lake import Lake
from lake.topics.sink import Import
from lakehouse.imports.filled_topic import MOST, FilledTopic
from lakehouse.imports.published import FILE, Change, Published
from lakehouse.imports.source import Source
from lakehouse.sinks.loop import Loop, LoopStream
from lakehouse.sinks.postgres.database import connect, explained, place_of
from lakehouse.sinks.running import require_declared

if TYPE_CHECKING:
    import psycopg

CANCEL_SECONDS = 5.0

log = structlog.get_logger()


def chosen(lake: Lake, names: Sequence[str] = ()) -> list[Import]:
    """The imports with some names, or all.

    Raises:
        SettingsError: there is no import with such a name, or none at all.
    """
    known = lake.topics.imports
    require_declared("import", known, names, "[import.NAME]")
    return [each for name, each in known.items() if not names or name in names]


def run_imports(
    lake: Lake, imports: Sequence[Import], *, available_now: bool = False
) -> list[Stream]:
    """The streams of imports, which begin when they are kept. They need no Spark.

    With `available_now`, each ends after one comparison.
    """
    return [
        LoopStream(
            each.label,
            lake.settings,
            partial(_start, lake, each, available_now),
            lambda: True,
            available_now=available_now,
            flow=_flow(lake, each),
        )
        for each in imports
    ]


def _flow(lake: Lake, declared: Import) -> Flow:
    return Flow((place_of(declared),), topic_places(lake, lake.topics.topics[declared.name]))


def _start(lake: Lake, declared: Import, available_now: bool) -> Running:
    """Start an importer.

    Raises:
        CheckpointError: another process runs the import.
    """
    checkpoint = claim(lake.settings, declared.label)
    try:
        importer = Importer(lake, declared, Path(checkpoint.path) / FILE)
        loop = Loop(importer.compare, importer.cancel, importer.close, available_now=available_now)
        return loop.running(checkpoint)
    except BaseException:
        checkpoint.release()
        raise


class Importer:
    """Publishes the differences between a table and its topic. Used by one thread, but `cancel`."""

    def __init__(self, lake: Lake, declared: Import, file: Path) -> None:
        self._lake, self._declared, self._file = lake, declared, file
        self._changelog = lake.topics.topics[declared.name]
        self._due = 0.0  # when to compare next, by the monotonic clock
        self._connection: psycopg.Connection[Any] | None = None
        self._topic: FilledTopic | None = None
        self._published: Published | None = None

    def compare(self) -> bool:
        """Compare once if it is time. Called again and again by the loop.

        Returns:
            Whether it was time.

        Raises:
            DatabaseError: the database does not answer.
            BrokerError: the broker does not answer, or there is another producer.
            SettingsError: the table or what the topic holds does not fit the import.
            CheckpointError: the copy of what the topic holds is damaged.
        """
        if time.monotonic() < self._due:
            return False
        self._due = time.monotonic() + self._declared.every.total_seconds()
        # The topic comes first: another importer may have published until it became ours, and an
        # older snapshot must not be published after a newer one.
        topic, published = self._opened()
        with contextlib.closing(connect(self._declared)) as connection:
            self._connection = connection
            with explained(self._declared), connection.transaction():
                connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
                source = Source(connection, self._declared, self._changelog)
                at = max(source.now_ms(), published.compared_at() or 0)  # a clock may be put back
                count = 0
                for portion in _portions(published.differences(source.rows())):
                    topic.send(published, portion, at)
                    count += len(portion)
        published.note_compared(at)
        if count:
            log.info("imported", name=self._declared.name, changed_rows=count)
        return True

    def cancel(self) -> None:
        """Make a comparison that is running fail. Called by another thread."""
        import psycopg

        if self._topic is not None:
            self._topic.stop()
        if self._connection is not None:
            with contextlib.suppress(psycopg.Error):  # the connection may be lost or closed
                self._connection.cancel_safe(timeout=CANCEL_SECONDS)

    def close(self) -> None:
        """Close the connections and the copy. What was not kept is read from the topic again."""
        if self._topic is not None:
            self._topic.close()
        if self._published is not None:
            self._published.close()

    def _opened(self) -> tuple[FilledTopic, Published]:
        """The topic, which is ours from the first call on, and what it holds."""
        if self._topic is None:
            self._topic = FilledTopic(self._lake, self._declared)
        if self._published is None:
            published = Published(self._file)
            try:
                self._topic.read(published)
            except BaseException:
                published.close()
                raise
            self._published = published
        return self._topic, self._published


def _portions(changes: Iterator[Change]) -> Iterator[list[Change]]:
    """Divide changes, so that a portion fits the memory."""
    portion: list[Change] = []
    size = 0
    for each in changes:
        portion.append(each)
        size += len(each.payload)
        if len(portion) >= MOST[0] or size >= MOST[1]:
            yield portion
            portion, size = [], 0
    if portion:
        yield portion
