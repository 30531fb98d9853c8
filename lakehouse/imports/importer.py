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
from uuid import uuid4

import structlog

from lake.observe.lineage import Flow, Place, topic_places
from lake.streams.checkpoint import Running, claim
from lake.streams.supervisor import Stream
from lake.tables.lake import Lake
from lake.topics.sink import Import
from lakehouse.imports.published import FILE, Change, Partition, Published
from lakehouse.imports.source import Source
from lakehouse.messages.publish import create_topic
from lakehouse.sinks.loop import Loop, LoopStream
from lakehouse.sinks.postgres.database import address_of, connect, explained, require_driver
from pulsar_spark.broker.admin import PulsarAdmin, namespace_of
from pulsar_spark.errors import BrokerError, LakehouseError, SettingsError
from pulsar_spark.offsets import Position

if TYPE_CHECKING:
    import psycopg
    import pulsar

PRODUCER = "lakehouse-import-"  # begins the names of the producers of all imports
MOST = (10_000, 16 << 20)  # messages and bytes that are published before they are kept
READ_SECONDS = 30
CANCEL_SECONDS = 5.0

log = structlog.get_logger()


def chosen(lake: Lake, names: Sequence[str] = ()) -> list[Import]:
    """The imports with some names, or all.

    Raises:
        SettingsError: there is no import with such a name, or none at all.
    """
    known = lake.topics.imports
    if not known:
        message = "The topic file declares no imports. Declare them in [import.NAME]."
        raise SettingsError(message)
    for name in names:
        if name not in known:
            message = f"The topic file has no import '{name}'. It has {', '.join(known)}."
            raise SettingsError(message)
    return [each for name, each in known.items() if not names or name in names]


def check_imports(imports: Sequence[Import]) -> None:
    """Check what can be known before anything is started.

    Raises:
        SettingsError: the driver of PostgreSQL is not installed, or the address of a database
            cannot be read.
    """
    if imports:
        require_driver()
    for each in imports:
        address_of(each)


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
    address = address_of(declared)
    place = f"postgres://{address.get('host', 'localhost')}:{address.get('port', '5432')}"
    name = f"{address.get('dbname', address.get('user', ''))}.{declared.table}"
    return Flow((Place(place, name),), topic_places(lake, lake.topics.topics[declared.name]))


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


def _end(admin: PulsarAdmin, partition: str) -> Position | None:
    """The last entry of a partition; None if there is none that the broker still keeps."""
    state = admin.state(partition)
    is_kept = any(ledger.id == state.last.ledger for ledger in state.log.ledgers)
    return state.last if is_kept and state.last.entry >= 0 else None


def _position(message: Any) -> Position:
    """The entry of a message, by its id."""
    return Position(message.ledger_id(), message.entry_id())


class Importer:
    """Publishes the differences between a table and its topic. Used by one thread, but `cancel`."""

    def __init__(self, lake: Lake, declared: Import, file: Path) -> None:
        self._settings, self._declared, self._file = lake.settings, declared, file
        self._topic = lake.topics.topics[declared.name]
        [self._address] = lake.address(declared.name).names
        self._due = 0.0  # when to compare next, by the monotonic clock
        self._is_cancelled = False
        self._connection: psycopg.Connection[Any] | None = None
        self._client: pulsar.Client | None = None
        self._producer: pulsar.Producer | None = None
        self._published: Published | None = None
        self._partitions: list[Partition] = []

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
        published = self._published or self._open()
        with contextlib.closing(connect(self._declared)) as connection:
            self._connection = connection
            with explained(self._declared), connection.transaction():
                connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
                source = Source(connection, self._declared, self._topic)
                at = max(source.now_ms(), published.compared_at() or 0)  # a clock may be put back
                count = self._publish(published, published.differences(source.rows()), at)
        published.note_compared(at)
        if count:
            log.info("imported", name=self._declared.name, changed_rows=count)
        return True

    def cancel(self) -> None:
        """Make a comparison that is running fail. Called by another thread."""
        import psycopg

        self._is_cancelled = True
        if self._connection is not None:
            with contextlib.suppress(psycopg.Error):  # the connection may be lost or closed
                self._connection.cancel_safe(timeout=CANCEL_SECONDS)

    def close(self) -> None:
        """Close the connections and the copy. What was not kept is read from the topic again."""
        if self._client is not None:
            self._client.close()
        if self._published is not None:
            self._published.close()

    def _open(self) -> Published:
        """Become the only producer of the topic, and read what it holds."""
        import pulsar

        with PulsarAdmin(self._settings.connection) as admin:
            admin.ensure_namespace(namespace_of(self._address))
            create_topic(admin, self._address, self._topic)
            self._client = self._settings.connection.client()
            try:
                self._producer = self._client.create_producer(
                    self._address,
                    producer_name=f"{PRODUCER}{uuid4().hex}",
                    access_mode=pulsar.ProducerAccessMode.Exclusive,
                    block_if_queue_full=True,
                    max_pending_messages=MOST[0],
                )
            except (pulsar.ProducerBusy, pulsar.ProducerFenced) as error:
                what = (
                    f"{self._declared.label}: the topic {self._address} has another producer, and "
                    "an import must be the only one."
                )
                remedy = "Stop the other one. It may be the same import in another lake."
                raise BrokerError(what, remedy) from error
            except pulsar.PulsarException as error:
                raise self._refused(error) from error
            names = admin.partitions(self._address)
            self._partitions = [Partition(each, admin.created_at(each) or 0) for each in names]
            ends = {each: _end(admin, each) for each in names}
        published = Published(self._file)
        try:
            known = published.positions(self._partitions)
            for each in self._partitions:
                self._read(published, each, known.get(each.name), ends[each.name])
        except BaseException:
            published.close()
            raise
        self._published = published
        return published

    def _read(
        self, published: Published, partition: Partition, after: bytes | None, end: Position | None
    ) -> None:
        """Keep what a partition holds after a message, up to its last entry.

        The reader itself finds no end behind messages without payload.

        Raises:
            SettingsError: another producer has published rows.
        """
        import pulsar

        known = pulsar.MessageId.earliest if after is None else pulsar.MessageId.deserialize(after)
        if self._client is None or end is None or _position(known) >= end:
            return
        changes: list[Change] = []
        try:
            reader = self._client.create_reader(partition.name, known)
            try:
                while _position(known) < end or reader.has_message_available():
                    message = reader.read_next(READ_SECONDS * 1000)
                    payload, known = message.data(), message.message_id()
                    if payload and not message.producer_name().startswith(PRODUCER):
                        self._refuse_others(partition.name)
                    changes.append(Change(message.partition_key().encode(), payload))
                    if len(changes) >= MOST[0]:
                        published.keep(changes, {partition: known.serialize()})
                        changes = []
                        self._check_cancelled()
            finally:
                reader.close()
        except pulsar.PulsarException as error:
            raise self._refused(error) from error
        published.keep(changes, {partition: known.serialize()})

    def _publish(self, published: Published, changes: Iterator[Change], at: int) -> int:
        """Publish changes portion by portion, and keep each when the broker has confirmed it."""
        count = size = 0
        portion: list[Change] = []
        for each in changes:
            portion.append(each)
            count, size = count + 1, size + len(each.payload)
            if len(portion) >= MOST[0] or size >= MOST[1]:
                self._send(published, portion, at)
                portion, size = [], 0
        if portion:
            self._send(published, portion, at)
        return count

    def _send(self, published: Published, changes: Sequence[Change], at: int) -> None:
        import pulsar

        failures: list[Any] = []
        ends: dict[int, Any] = {}

        def confirmed(result: Any, message: Any) -> None:
            if result != pulsar.Result.Ok:
                failures.append(result)
            elif message.entry_id() >= 0:  # not if the broker has dropped a repetition
                ends[max(message.partition(), 0)] = message

        producer = self._producer
        if producer is None:
            return
        try:
            for key, payload in changes:
                producer.send_async(
                    payload, confirmed, partition_key=key.decode(), event_timestamp=at
                )
            producer.flush()
        except pulsar.PulsarException as error:
            failures.append(repr(error))
        if failures:
            raise self._refused(failures[0])
        self._check_cancelled()
        published.keep(
            changes, {self._partitions[n]: message.serialize() for n, message in ends.items()}
        )

    def _check_cancelled(self) -> None:
        if self._is_cancelled:
            message = f"{self._declared.label} was stopped while it was comparing."
            raise LakehouseError(message)

    def _refused(self, why: object) -> BrokerError:
        what = (
            f"{self._declared.label}: the broker at {self._settings.pulsar_url} refuses "
            f"{self._address}: {why!r}."
        )
        return BrokerError(what)

    def _refuse_others(self, partition: str) -> None:
        message = (
            f"{self._declared.label}: {partition} holds messages that no import has published. The "
            "import would delete their keys."
        )
        remedy = (
            "Name another 'topic' for the changelog, or delete the topic on the broker before the "
            "lake has landed it."
        )
        raise SettingsError(message, remedy)
