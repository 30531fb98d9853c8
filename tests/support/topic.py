"""A real topic of the suite's broker, with the messages a test sends and their positions."""

import random
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

import pulsar
from deltalake import DeltaTable

from lake.settings.settings import LakeSettings
from lake.topics.topic import Topic
from lake.topics.topic_file import TopicFile, load_topics
from pulsar_spark.broker.admin import PulsarAdmin

# A small topic file, which tests change.
GOOD = """
[topics.users]
kind = "changelog"
key = ["id"]
[topics.users.fields]
id = "long"
parentUserId = { type = "long", absent = -1 }

[topics.orders]
kind = "events"
key = ["id"]
[topics.orders.fields]
id = "long"
userId = "long"
[topics.orders.lookups]
user = { topic = "users", on = "userId" }
"""


class Sent(NamedTuple):
    """A message as bronze must store it."""

    partition: int
    ledger: int
    entry: int
    batch_index: int
    key: str | None
    payload: bytes | None
    event_time_ms: int | None
    properties: tuple[tuple[str, str], ...]


class Outgoing(NamedTuple):
    payload: bytes
    key: str | None = None
    event_time_ms: int | None = None
    properties: dict[str, str] = {}  # noqa: RUF012 - never changed


def events(name: str, partitions: int = 1) -> TopicFile:
    """Return a topic file with one topic, whose payloads are not decoded."""
    fields: dict[str, Any] = {"id": "long"}
    topic = Topic(name=name, kind="events", key=["id"], partitions=partitions, fields=fields)
    return TopicFile(topics={name: topic})


def declared(folder: Path, text: str) -> TopicFile:
    """Write a topic file with this text and load it."""
    return load_topics(write(folder, text))


def write(folder: Path, text: str) -> Path:
    """Write a topic file with this text, and return its path."""
    path = folder / "topics.toml"
    path.write_text(text)
    return path


class LiveTopic:
    """A topic in the test's own namespace."""

    def __init__(self, settings: LakeSettings, name: str, partitions: int) -> None:
        self.settings = settings
        self.name = settings.full_topic(name)
        self.topics = events(name, partitions)
        self.create(partitions)

    def create(self, partitions: int) -> None:
        with PulsarAdmin(self.settings.connection) as admin:
            admin.ensure_namespace(self.settings.pulsar_namespace)
            admin.ensure_topic(self.name, partitions)

    def delete(self) -> None:
        with PulsarAdmin(self.settings.connection) as admin:
            admin.delete_topic(self.name)

    def send(self, messages: Iterable[Outgoing], *, batched: bool = False) -> list[Sent]:
        """Send messages and wait until the broker has acknowledged each of them."""
        client = self.settings.connection.client()
        found: list[Sent] = []
        producer = client.create_producer(
            self.name,
            batching_enabled=batched,
            batching_max_messages=7,
            batching_max_publish_delay_ms=50,
            batching_type=pulsar.BatchingType.KeyBased,
            block_if_queue_full=True,
        )
        try:
            for message in messages:
                producer.send_async(message.payload, _keep(found, message), **_options(message))
            producer.flush()
        finally:
            client.close()
        return found


def landed(topic: LiveTopic) -> list[Sent]:
    """Return the rows of a topic's bronze table, in the order of their positions."""
    [name] = topic.topics.topics
    table = DeltaTable(topic.settings.table_path("bronze", name)).to_pyarrow_table()
    rows = [
        Sent(
            *(row["partition"], row["ledger"], row["entry"], row["batch_index"]),
            *(row["key"], row["payload"]),
            row["event_time"] and round(row["event_time"].timestamp() * 1000),
            tuple(sorted(row["properties"])),
        )
        for row in table.to_pylist()
    ]
    return sorted(rows, key=lambda row: row[:4])


def some(count: int, seed: int = 1) -> list[Outgoing]:
    """Return messages of all kinds: keyed or not, empty, not text, with and without properties."""
    rng = random.Random(seed)
    return [
        Outgoing(
            rng.choice([b"", b"\x00\xff", b"{", f"payload {number}".encode()]),
            rng.choice([None, f"key-{rng.randrange(5)}", "schlüssel"]),
            rng.choice([None, 1_400_000_000_000 + number]),
            rng.choice([{}, {"source": "test", "number": str(number)}]),
        )
        for number in range(count)
    ]


def _options(message: Outgoing) -> dict[str, Any]:
    options: dict[str, Any] = {"properties": message.properties}
    if message.key is not None:
        options["partition_key"] = message.key
    if message.event_time_ms is not None:
        options["event_timestamp"] = message.event_time_ms
    return options


def _keep(found: list[Sent], message: Outgoing) -> Any:
    def confirmed(result: Any, message_id: Any) -> None:
        assert result == pulsar.Result.Ok, result
        place = (message_id.partition(), message_id.ledger_id(), message_id.entry_id())
        properties = tuple(sorted(message.properties.items()))
        content = (message.key, message.payload, message.event_time_ms, properties)
        found.append(Sent(*place, max(message_id.batch_index(), 0), *content))

    return confirmed
