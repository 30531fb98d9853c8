"""The topic of an import: reads what it holds, and is its only producer.

The broker refuses a second producer. It accepts this one only after it has closed a killed
predecessor, so nothing that a predecessor sent comes after what is read here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from lake.tables.lake import Lake
from lake.topics.sink import Import
from lakehouse.imports.published import Change, Partition, Published
from lakehouse.messages.publish import create_topic
from pulsar_spark.broker.admin import PulsarAdmin, namespace_of
from pulsar_spark.errors import BrokerError, LakehouseError, SettingsError
from pulsar_spark.offsets import Position

if TYPE_CHECKING:
    import pulsar

PRODUCER = "lakehouse-import-"  # begins the names of the producers of all imports
MOST = (10_000, 16 << 20)  # messages and bytes that are published before they are kept
READ_SECONDS = 30


class FilledTopic:
    """The topic. It is created if it does not exist.

    Raises:
        BrokerError: the broker does not answer, or there is another producer.
    """

    def __init__(self, lake: Lake, declared: Import) -> None:
        self._settings, self._declared = lake.settings, declared
        [self._address] = lake.address(declared.name).names
        self._is_stopped = False
        with PulsarAdmin(self._settings.connection) as admin:
            admin.ensure_namespace(namespace_of(self._address))
            create_topic(admin, self._address, lake.topics.topics[declared.name])
            self._client = self._settings.connection.client()
            try:
                self._producer = self._only_producer()
                names = admin.partitions(self._address)
                self._partitions = [Partition(each, admin.created_at(each) or 0) for each in names]
                self._ends = {each: _end(admin, each.name) for each in self._partitions}
            except BaseException:
                self._client.close()
                raise

    def close(self) -> None:
        """Close the connection to the broker."""
        self._client.close()

    def stop(self) -> None:
        """Make what is running fail. Called by another thread."""
        self._is_stopped = True

    def read(self, published: Published) -> None:
        """Keep what the topic held when it became ours, after what is known.

        Raises:
            SettingsError: another producer has published rows.
            BrokerError: the broker does not answer.
        """
        import pulsar

        known = published.positions(self._partitions)
        for each, end in self._ends.items():
            after = known.get(each.name)
            start = pulsar.MessageId.deserialize(after) if after else pulsar.MessageId.earliest
            if end is not None and _position(start) < end:
                try:
                    self._read(published, each, start, end)
                except pulsar.PulsarException as error:
                    raise self._refused(error) from error

    def send(self, published: Published, changes: Sequence[Change], at: int) -> None:
        """Publish changes, and keep them when the broker has confirmed them.

        Args:
            published: where to keep them.
            changes: the changes, of different keys.
            at: their event time in epoch milliseconds.

        Raises:
            BrokerError: the broker has refused a message.
        """
        import pulsar

        failures: list[Any] = []
        ends: dict[Partition, Any] = {}

        def confirmed(result: Any, message: Any) -> None:
            if result != pulsar.Result.Ok:
                failures.append(result)
            elif message.entry_id() >= 0:  # not if the broker has dropped a repetition
                ends[self._partitions[max(message.partition(), 0)]] = message

        try:
            for key, payload in changes:
                self._producer.send_async(
                    payload, confirmed, partition_key=key.decode(), event_timestamp=at
                )
            self._producer.flush()
        except pulsar.PulsarException as error:
            failures.append(error)
        if failures:
            raise self._refused(failures[0])
        self._check_stopped()
        published.keep(changes, {each: message.serialize() for each, message in ends.items()})

    def _only_producer(self) -> pulsar.Producer:
        import pulsar

        try:
            return self._client.create_producer(
                self._address,
                producer_name=f"{PRODUCER}{uuid4().hex}",
                access_mode=pulsar.ProducerAccessMode.Exclusive,
                block_if_queue_full=True,
                max_pending_messages=MOST[0],
            )
        except (pulsar.ProducerBusy, pulsar.ProducerFenced) as error:
            what = (
                f"{self._declared.label}: the topic {self._address} has another producer, and an "
                "import must be the only one."
            )
            remedy = "Stop the other one. It may be the same import in another lake."
            raise BrokerError(what, remedy) from error
        except pulsar.PulsarException as error:
            raise self._refused(error) from error

    def _read(self, published: Published, partition: Partition, start: Any, end: Position) -> None:
        """Keep the messages of a partition after one of them.

        The reader itself sees no end behind messages without payload, so the end is given.
        """
        changes: list[Change] = []
        reader = self._client.create_reader(partition.name, start)
        try:
            while _position(start) < end or reader.has_message_available():
                message = reader.read_next(READ_SECONDS * 1000)
                payload, start = message.data(), message.message_id()
                if payload and not message.producer_name().startswith(PRODUCER):
                    self._refuse_others(partition.name)
                changes.append(Change(message.partition_key().encode(), payload))
                if len(changes) >= MOST[0]:
                    published.keep(changes, {partition: start.serialize()})
                    changes = []
                    self._check_stopped()
        finally:
            reader.close()
        published.keep(changes, {partition: start.serialize()})

    def _check_stopped(self) -> None:
        if self._is_stopped:
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


def _end(admin: PulsarAdmin, partition: str) -> Position | None:
    """The last entry of a partition; None if there is none that the broker still keeps."""
    state = admin.state(partition)
    is_kept = any(ledger.id == state.last.ledger for ledger in state.log.ledgers)
    return state.last if is_kept and state.last.entry >= 0 else None


def _position(message: Any) -> Position:
    """The entry of a message, by its id."""
    return Position(message.ledger_id(), message.entry_id())
