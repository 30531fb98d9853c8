"""Tests reading messages in transactions, without a value or compacted, and their ids."""

from collections.abc import Callable

import pytest
from deltalake import DeltaTable
from hypothesis import given
from hypothesis import strategies as st
from java_client import JavaClient
from pyspark.sql import SparkSession
from tenacity import Retrying, retry_if_not_result, stop_after_delay, wait_fixed
from topic import LiveTopic

from bronze.ingest import ingest
from bronze.lag import topic_lag
from lake.settings.settings import LakeSettings
from lake.streams.job import await_streams
from lake.tables.lake import Lake
from lakehouse.runtime.broker import Broker
from pulsar_spark.broker.admin import PulsarAdmin
from pulsar_spark.read.reader import batch_size, split_partition

Land = Callable[[], list[tuple[str | None, bytes | None]]]


@pytest.fixture
def topic(broker: Broker, settings: LakeSettings) -> LiveTopic:
    return LiveTopic(settings, "kinds", 1)


@pytest.fixture
def land(spark: SparkSession, topic: LiveTopic) -> Land:
    """A function that lands all messages with a new query and returns bronze in topic order."""

    def land_it() -> list[tuple[str | None, bytes | None]]:
        await_streams(ingest(spark, Lake(topic.settings, topic.topics), available_now=True))
        rows = DeltaTable(topic.settings.table_path("bronze", "kinds")).to_pyarrow_table()
        found = sorted(rows.to_pylist(), key=lambda r: (r["ledger"], r["entry"], r["batch_index"]))
        return [(row["key"], row["payload"]) for row in found]

    return land_it


def values(landed: list[tuple[str | None, bytes | None]]) -> list[bytes | None]:
    return [payload for _, payload in landed]


def test_a_transaction_is_seen_when_it_is_committed_and_never_when_aborted(
    topic: LiveTopic, land: Land, java: JavaClient
) -> None:
    producer = java.producer(topic.name)
    producer.newMessage().value(b"plain").send()
    first = java.transaction()
    producer.newMessage(first).value(b"committed").send()
    producer.newMessage().value(b"behind an open transaction").send()
    assert values(land()) == [b"plain"], "an open transaction holds back later messages"
    first.commit().get()
    seen = [b"plain", b"committed", b"behind an open transaction"]
    assert values(land()) == seen
    second = java.transaction()
    producer.newMessage(second).value(b"aborted").send()
    assert values(land()) == seen
    second.abort().get()
    assert values(land()) == seen
    with PulsarAdmin(topic.settings.connection) as admin:
        assert (
            topic_lag(admin, Lake(topic.settings, topic.topics), "kinds").messages(len(seen)) == 0
        )
    producer.newMessage().value(b"last").send()
    assert values(land()) == [*seen, b"last"]


def test_a_null_value_is_not_an_empty_value(topic: LiveTopic, land: Land, java: JavaClient) -> None:
    for batched in (False, True):
        producer = java.producer(topic.name, batched=batched)
        sent = [
            producer.newMessage().key(key).value(value).sendAsync()
            for key, value in (("a", None), ("b", b""), ("c", b"x"))
        ]
        for each in sent:
            each.get()
    assert land() == [("a", None), ("b", b""), ("c", b"x")] * 2


@pytest.mark.parametrize("batched", [True, pytest.param(False, marks=pytest.mark.nightly)])
def test_a_compacted_topic_delivers_the_last_message_of_each_key(
    topic: LiveTopic, land: Land, java: JavaClient, batched: bool
) -> None:
    declared = topic.topics.topics["kinds"].model_copy(
        update={"kind": "changelog", "compacted": True}
    )
    topic.topics = topic.topics.model_copy(update={"topics": {"kinds": declared}})
    producer = java.producer(topic.name, batched=batched)
    sent = [
        producer.newMessage().key(f"k{n % 3}").value(f"v{n}".encode()).sendAsync() for n in range(9)
    ]
    sent.append(producer.newMessage().key("k1").value(None).sendAsync())
    for each in sent:
        each.get()
    compact(topic)
    assert land() == [("k0", b"v6"), ("k2", b"v8")], "the last entry was compacted away"
    producer.newMessage().key("k0").value(b"later").send()
    assert land() == [("k0", b"v6"), ("k2", b"v8"), ("k0", b"later")]


def compact(topic: LiveTopic) -> None:
    """Compact the topic; retry, because the broker may report success without compacting."""
    partition = f"{topic.name}-partition-0"
    path = f"persistent/{partition.removeprefix('persistent://')}/compaction"
    with (
        topic.settings.connection.http(10) as http,
        PulsarAdmin(topic.settings.connection) as admin,
    ):

        def is_compacted() -> bool:
            status = http.get(path).json()["status"]
            done = admin.compacted(partition) == admin.last_position(partition)
            if status != "RUNNING" and not done:
                if status == "SUCCESS":
                    admin.unload(partition)
                http.put(path)
            return done

        Retrying(
            retry=retry_if_not_result(bool),
            stop=stop_after_delay(60),
            wait=wait_fixed(0.1),
        )(is_compacted)


def test_the_partition_is_read_from_the_topics_name() -> None:
    assert split_partition("persistent://a/b/orders-partition-3") == ("persistent://a/b/orders", 3)
    assert split_partition("persistent://a/b/orders") == ("persistent://a/b/orders", -1)
    assert split_partition("persistent://a/b/x-partition-y") == (
        "persistent://a/b/x-partition-y",
        -1,
    )


def varint(number: int) -> bytes:
    out = bytearray()
    while True:
        out.append((number & 0x7F) | (0x80 if number > 0x7F else 0))
        number >>= 7
        if not number:
            return bytes(out)


@given(st.integers(0, 2**62), st.integers(0, 2**62), st.integers(1, 100_000), st.binary())
def test_the_batch_size_is_found_among_the_fields_of_a_message_id(
    ledger: int, entry: int, size: int, ack_set: bytes
) -> None:
    # MessageIdData: ledgerId = 1, entryId = 2, ack_set = 5 (packed), batch_size = 6.
    before = b"\x08" + varint(ledger) + b"\x10" + varint(entry)
    packed = b"\x2a" + varint(len(ack_set)) + ack_set
    assert batch_size(before + packed + b"\x30" + varint(size)) == size
    assert batch_size(before) == 1
