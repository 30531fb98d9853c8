"""Tests metadata that producers of any language may send: not UTF-8, or with impossible times."""

import datetime as dt
import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import _pulsar
import pytest
from deltalake import DeltaTable
from java_client import JavaClient
from pyspark.sql import SparkSession
from topic import LiveTopic

from bronze.ingest import ingest
from lake.settings.settings import LakeSettings
from lake.streams.job import await_streams
from lake.tables.lake import Lake
from lakehouse.runtime.broker import Broker

FIRST, LAST = 1, 253_402_300_799_999  # ms; an event time of 0 means none
EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.timezone.utc)
ODD_BYTES = (
    *(b"", b"a", b"a\0b", b"\xff", b"\xfe\xff", b"\xed\xa0\x80", b"\xed\xa0\xbd\xed\xb8\x80"),
    *(b"\xc0\x80", b"\xf5\x80\x80\x80", b"abc\xe2\x82", "ключ\u00a0\U0001f511".encode(), b"//4="),
    *(b"a\r\nX-Pulsar-txn-aborted: true", b"'k':'v', ", b"', '", b"'})", b"k" * 20_000),
)
ODD_TIMES = (
    *(0, 1, 999, 1_700_000_000_000, LAST, LAST + 1, 1_790_000_000_000_000_000),
    *(2**63 - 1, 2**63, 2**64 - 1, 2**64 - 1000, 2**62),
)


@dataclass(frozen=True)
class Odd:
    """A message as it was sent."""

    payload: bytes
    key: bytes
    properties: dict[bytes, bytes]
    event_time: int

    def as_landed(self) -> dict[str, Any]:
        """Return the row that bronze must have, by an independent rule."""
        text = {n: v for n, v in self.properties.items() if is_text(n) and is_text(v)}
        fits = FIRST <= self.event_time <= LAST
        wrong = [] if is_text(self.key) else ["key"]
        wrong += [] if len(text) == len(self.properties) else ["properties"]
        wrong += [] if fits or not self.event_time else [f"event_time {self.event_time}"]
        raw = [{"name": n, "value": v} for n, v in self.properties.items()]
        return {
            "payload": self.payload,
            "key": self.key.decode() or None if is_text(self.key) else None,
            "raw_key": None if is_text(self.key) else self.key,
            "properties": {n.decode(): v.decode() for n, v in text.items()},
            "raw_properties": by_name(raw) if "properties" in wrong else None,
            "event_time": EPOCH + dt.timedelta(milliseconds=self.event_time) if fits else None,
            "undecoded": ", ".join(wrong) or None,
        }


def is_text(content: bytes) -> bool:
    try:
        content.decode()
    except UnicodeDecodeError:
        return False
    return True


def by_name(properties: list[dict[str, bytes]]) -> list[dict[str, bytes]]:
    return sorted(properties, key=lambda each: each["name"])


def generated(count: int, seed: int) -> Iterator[Odd]:
    chosen = random.Random(seed)
    for number in range(count):
        key = chosen.choice((b"", b"plain", chosen.choice(ODD_BYTES), chosen.randbytes(5)))
        names = [chosen.choice((*ODD_BYTES, b"plain")) for _ in range(chosen.choice((0, 0, 1, 3)))]
        if chosen.random() < 0.02:
            names += [b"%d" % n for n in range(12)]
        properties = {name: chosen.choice((*ODD_BYTES, b"text")) for name in names}
        time = chosen.choice((0, *ODD_TIMES, chosen.randrange(2**64)))
        yield Odd(b"%d" % number, key, properties, time)


def send(topic: LiveTopic, messages: list[Odd], **options: Any) -> None:
    """Send with the client's internal builder, which takes bytes instead of the API's text."""
    client = topic.settings.connection.client()
    try:
        producer = client.create_producer(f"{topic.name}-partition-0", **options)
        for message in messages:
            builder = _pulsar.MessageBuilder().content(message.payload)
            if message.key:
                builder.partition_key(message.key)
            for name, value in message.properties.items():
                builder.property(name, value)
            if message.event_time:
                builder.event_timestamp(message.event_time)
            producer._producer.send_async(builder.build(), lambda *_: None)  # noqa: SLF001
        producer.flush()
    finally:
        client.close()


def land(spark: SparkSession, topic: LiveTopic) -> list[dict[str, Any]]:
    """Land all messages and return bronze's rows, in the order of their positions."""
    await_streams(ingest(spark, Lake(topic.settings, topic.topics), available_now=True))
    rows = DeltaTable(topic.settings.table_path("bronze", topic.name.rpartition("/")[2]))
    found = rows.to_pyarrow_table().to_pylist()
    for row in found:
        row["properties"] = dict(row["properties"])
        if row["raw_properties"] is not None:
            row["raw_properties"] = by_name(row["raw_properties"])
    return sorted(found, key=lambda r: (r["ledger"], r["entry"], r["batch_index"]))


@pytest.fixture
def topic(broker: Broker, settings: LakeSettings) -> LiveTopic:
    return LiveTopic(settings, "odd", 1)


def assert_landed(landed: list[dict[str, Any]], sent: list[Odd]) -> None:
    assert len(landed) == len(sent)
    for row, message in zip(landed, sent, strict=True):
        expected = message.as_landed()
        found = {name: row[name] for name in expected}
        assert found == expected, f"{message} landed as {found}"


def test_every_message_lands_whatever_its_metadata(spark: SparkSession, topic: LiveTopic) -> None:
    sent = list(generated(400, seed=12))
    assert sum(each.as_landed()["undecoded"] is not None for each in sent) > 200
    send(topic, sent[:100], batching_enabled=False)
    send(topic, sent[100:250], batching_enabled=True, batching_max_messages=9)
    lz4 = _pulsar.CompressionType.LZ4
    send(topic, sent[250:], batching_enabled=True, compression_type=lz4)
    assert_landed(land(spark, topic), sent)


@pytest.mark.parametrize("batched", [False, True])
def test_the_last_message_of_a_topic_may_have_any_metadata(
    spark: SparkSession, topic: LiveTopic, batched: bool
) -> None:
    """The broker's admin API does not show messages with more than 8 KB of metadata."""
    sent = [Odd(b"plain", b"k", {}, 0), Odd(b"odd", b"\xff" * 9000, {b"\xff": b"x" * 9000}, 2**63)]
    send(topic, sent, batching_enabled=batched)
    assert_landed(land(spark, topic), sent)


def test_byte_keys_of_java_are_base64_and_publish_times_may_be_impossible(
    spark: SparkSession, topic: LiveTopic, java: JavaClient
) -> None:
    producer = java.producer(topic.name)
    producer.newMessage().keyBytes(b"\xff\xfe").value(b"bytes").send()
    builder = producer.newMessage().value(b"beyond")
    metadata = builder.getMetadataBuilder()
    metadata.addProperty().setKey("n").setValue("first")
    metadata.addProperty().setKey("n").setValue("second")
    builder.send()
    first, second = land(spark, topic)
    assert (first["key"], first["raw_key"]) == ("//4=", None)
    assert second["properties"] == {"n": "second"} or second["properties"] == {"n": "first"}
