"""`lakehouse consume`: reads the newest messages of a topic, without Spark or a subscription.

Pulsar's readers have no durable subscription, so the broker keeps nothing for them afterwards.
"""

from __future__ import annotations

import base64
import contextlib
import time
from collections import deque
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import pulsar

from pulsar_spark.broker.admin import PulsarAdmin
from pulsar_spark.errors import BrokerError
from pulsar_spark.offsets import START, Position

if TYPE_CHECKING:
    from lake.settings.settings import LakeSettings
    from pulsar_spark.plan.ledgers import PartitionLog

WAIT_MS = 1  # for a message that has arrived already
PAUSE_SECONDS = 0.02  # before readers that had no message are asked again
REST_SECONDS = 0.1  # for the rest of the last entry, which arrives with its first message
QUIET_SECONDS = 5.0  # a partition may end with entries that no reader sees
QUEUE = 1_000
AT_ONCE = 1_000  # messages of a partition before the next partition has its turn
MORE = 8  # times as many entries are read if some have no messages


class Received(NamedTuple):
    """A message as it was received.

    partition: the number of the partition; -1 if the topic has none.
    key: the message key; None if it has none.
    publish_ms, event_ms: epoch milliseconds. The event time is None if the message has none.
    payload: the bytes; None for a tombstone.
    version: the version of the schema in the registry; None if the message has none.
    """

    partition: int
    position: Position
    key: str | None
    publish_ms: int
    event_ms: int | None
    payload: bytes | None
    version: int | None


class Tail:
    """The end of a topic: its newest messages, and then those that arrive.

    Use it as a context manager. Partitions that are added later are not read.

    settings: the address of the broker.
    address: the full name of the topic on the broker.
    queue: messages of each partition that the client fetches ahead.

    Raises:
        TopicNotFoundError: the broker has no such topic.
        BrokerError: the broker does not answer.
    """

    def __init__(self, settings: LakeSettings, address: str, queue: int = QUEUE) -> None:
        self._queue = queue
        self._url = settings.pulsar_url
        with PulsarAdmin(settings.connection) as admin:
            partitions = admin.partitions(address)
            self._logs = {partition: admin.log(partition) for partition in partitions}
        self._client = settings.connection.client()
        self._readers: dict[str, Any] = {}

    def __enter__(self) -> Tail:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def newest(self, count: int) -> list[Received]:
        """The newest messages of all partitions, the oldest of them first. Called once.

        Raises:
            BrokerError: the broker stopped answering.
        """
        entries = max(count, 1)
        with self._errors():
            while True:
                starts = {name: _back(log, entries) for name, log in self._logs.items()}
                self._open(starts)
                found = self._until_the_end(count)
                if all(starts[name] is None or len(found[name]) >= count for name in starts):
                    break
                entries *= MORE
        messages = sorted(
            (each for part in found.values() for each in part),
            key=lambda each: (each.publish_ms, each.partition, each.position),
        )
        return messages[max(len(messages) - count, 0) :]

    def following(self) -> Iterator[Received]:
        """The messages that arrive after those of `newest`. Never ends by itself.

        The client reconnects if the broker is away for a while.

        Raises:
            BrokerError: the broker refuses to go on.
        """
        with self._errors():
            while True:
                found = self._poll()
                yield from (message for _, message in found)
                if not found:
                    time.sleep(PAUSE_SECONDS)

    def arrived(self, most: int) -> list[Received]:
        """Those of `following` that have arrived already, at most so many of each partition.

        Raises:
            BrokerError: the broker refuses to go on.
        """
        with self._errors():
            return [message for _, message in self._poll(most)]

    def skip(self) -> bool:
        """Go on at the end of the topic. Returns whether there was anything to skip.

        Raises:
            BrokerError: the broker refuses to go on.
        """
        with self._errors():
            late = [each for each in self._readers.values() if each.has_message_available()]
            for reader in late:
                reader.seek(pulsar.MessageId.latest)
        return bool(late)

    def _open(self, starts: dict[str, Position | None]) -> None:
        """Open a reader of each partition, at a position or, for None, at the beginning."""
        for reader in self._readers.values():
            reader.close()
        self._readers = {
            name: self._client.create_reader(
                name,
                pulsar.MessageId(-1, start.ledger, start.entry, -1)
                if start
                else pulsar.MessageId.earliest,
                receiver_queue_size=self._queue,
                start_message_id_inclusive=True,
            )
            for name, start in starts.items()
        }

    def _until_the_end(self, count: int) -> dict[str, deque[Received]]:
        """By partition, the last messages, at least up to its end when this object was made."""
        found = {name: deque[Received](maxlen=count) for name in self._logs}
        ends = {name: end for name, log in self._logs.items() if (end := _end(log))}
        reached = dict.fromkeys(ends, START)
        heard, done = time.monotonic(), None if ends else 0.0
        while done is None or time.monotonic() - done < REST_SECONDS:
            part = self._poll()
            for name, message in part:
                found[name].append(message)
                reached[name] = message.position
            if part:
                heard = time.monotonic()
            else:
                time.sleep(WAIT_MS / 1000)
            if done is None and (
                all(reached[name][:2] >= end[:2] for name, end in ends.items())
                or time.monotonic() - heard > QUIET_SECONDS
            ):
                done = time.monotonic()
        return found

    def _poll(self, most: int = AT_ONCE) -> list[tuple[str, Received]]:
        """The messages that have arrived, each with the name of its partition."""
        found = []
        for name, reader in self._readers.items():
            with contextlib.suppress(pulsar.Timeout):
                for _ in range(most):
                    found.append((name, _received(name, reader.read_next(WAIT_MS))))
        return found

    @contextlib.contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except pulsar.PulsarException as error:
            what = f"The broker at {self._url} did not send the messages: {error!r}."
            raise BrokerError(what, "Check that it is running, and try again.") from error


def _back(log: PartitionLog, entries: int) -> Position | None:
    """The position of the first of the last `entries` entries; None if there are no more."""
    for ledger in reversed(log.ledgers):
        if ledger.entries > entries:
            return Position(ledger.id, ledger.entries - entries)
        entries -= ledger.entries
    return None


def _end(log: PartitionLog) -> Position | None:
    """The position of the last entry; None if there is none."""
    last = next((ledger for ledger in reversed(log.ledgers) if ledger.entries), None)
    return last and Position(last.id, last.entries - 1)


def _received(partition: str, message: Any) -> Received:
    _, mark, number = partition.rpartition("-partition-")
    place, version = message.message_id(), message._message.int_schema_version()  # noqa: SLF001
    try:
        key = message.partition_key() or None
    except UnicodeDecodeError as error:
        key = f"base64:{base64.b64encode(error.object).decode()}"
    return Received(
        int(number) if mark and number.isdigit() else -1,
        # The client reports -1 as the index of a message that is not batched.
        Position(place.ledger_id(), place.entry_id(), max(place.batch_index(), 0)),
        key,
        message.publish_timestamp(),
        message.event_timestamp() or None,
        message.data() or None,
        version if version >= 0 else None,
    )
