"""Tests `format("pulsar")` without the rest of the lakehouse: batch reads and limits."""

import datetime as dt
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pulsar
import pytest
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql.streaming.datasource import ReadAllAvailable
from topic import LiveTopic, Outgoing, Sent

from lake.settings.settings import LakeSettings
from lakehouse.runtime.broker import Broker
from pulsar_spark.broker.admin import PulsarAdmin
from pulsar_spark.offsets import START, Position, estimate_of, from_json, to_json
from pulsar_spark.options import PulsarOptions
from pulsar_spark.source import PulsarDataSource, PulsarStreamReader

Read = Callable[..., list[Row]]


@pytest.fixture
def topic(broker: Broker, settings: LakeSettings) -> LiveTopic:
    return LiveTopic(settings, "facts", 2)


@pytest.fixture
def read(spark: SparkSession, topic: LiveTopic) -> Read:
    """A function for a batch read, with rows in the order of their positions."""
    spark.dataSource.register(PulsarDataSource)

    def rows(**options: Any) -> list[Row]:
        found = spark.read.format("pulsar").options(**{**base(topic), **options}).load().collect()
        return sorted(found, key=lambda r: (r.topic, r.partition, r.ledger, r.entry, r.batch_index))

    return rows


def base(topic: LiveTopic) -> dict[str, str]:
    return {
        "serviceUrl": topic.settings.pulsar_url,
        "adminUrl": topic.settings.pulsar_admin_url,
        "topic": topic.name,
    }


def numbered(count: int, first: int = 0) -> list[Outgoing]:
    return [Outgoing(f"{number}".encode(), key=f"{number % 5}") for number in range(first, count)]


def payloads(rows: list[Row]) -> list[bytes]:
    return sorted(bytes(row.payload) for row in rows)


def produce(topic: LiveTopic, payload: bytes | None, **options: Any) -> Position:
    """Send one message to partition 0 with a producer with these options."""
    client = topic.settings.connection.client()
    try:
        producer = client.create_producer(f"{topic.name}-partition-0", **options)
        sent = producer.send(payload)
        return Position(sent.ledger_id(), sent.entry_id())
    finally:
        client.close()


def first_of(sent: list[Sent], partition: int) -> Sent:
    return min((s for s in sent if s.partition == partition), key=lambda s: s[:4])


def test_a_batch_read_returns_all_messages_with_their_positions(
    read: Read, topic: LiveTopic
) -> None:
    assert read() == []
    sent = topic.send(numbered(40), batched=True)
    found = [(r.partition, r.ledger, r.entry, r.batch_index, r.key, r.payload) for r in read()]
    assert found == sorted(s[:6] for s in sent)


def test_positions_bound_a_batch_read_to_the_message(read: Read, topic: LiveTopic) -> None:
    sent = sorted(topic.send(numbered(60), batched=True), key=lambda s: s[:4])
    mine = [s for s in sent if s.partition == 0]
    low, high = mine[3], mine[-3]
    assert low.batch_index > 0 or mine[2].batch_index > 0, "no bound is inside an entry"
    name = f"{topic.name}-partition-0"
    starting = json.dumps(to_json({name: Position(*low[1:4])}))
    ending = json.dumps(to_json({name: Position(*high[1:4])}))
    found = read(startingPosition=starting, endingPosition=ending)
    assert payloads(found) == sorted(s.payload or b"" for s in mine[4:-2])
    behind = json.dumps(to_json({name: Position(*mine[-1][1:4]), f"{name[:-1]}1": START}))
    assert read(startingPosition=behind, endingPosition=ending) == [], "the end is before the start"


def test_timestamps_bound_a_batch_read(read: Read, topic: LiveTopic) -> None:
    topic.send(numbered(10))
    rows = read()
    instants = sorted({row.publish_time for row in rows})
    middle = instants[len(instants) // 2]
    earlier = read(endingTimestamp=iso(middle))
    later = read(startingTimestamp=iso(middle))
    assert {r.publish_time for r in later} == {i for i in instants if i >= middle}
    assert payloads(earlier + later) == payloads(rows)
    assert read(startingTimestamp=iso(instants[-1] + dt.timedelta(hours=1))) == []
    assert read(endingTimestamp=iso(instants[0])) == []
    assert payloads(read(startingTimestamp="0")) == payloads(rows)


def iso(instant: dt.datetime) -> str:
    return instant.astimezone(dt.timezone.utc).isoformat()


def test_compressed_and_empty_messages_arrive_unchanged(read: Read, topic: LiveTopic) -> None:
    kinds = pulsar.CompressionType
    for kind in (kinds.LZ4, kinds.ZSTD, kinds.ZLib, kinds.SNAPPY):
        produce(topic, b"squeezed " * 200, compression_type=kind)
    produce(topic, b"")
    assert [r.payload for r in read()] == [b"squeezed " * 200] * 4 + [b""]


def test_a_chunked_message_arrives_whole_wherever_a_task_or_batch_ends(
    read: Read, topic: LiveTopic
) -> None:
    size = 11 << 20
    produce(topic, b"before")
    first = produce(topic, b"a" * size, chunking_enabled=True)
    produce(topic, b"between")
    produce(topic, b"b" * size, chunking_enabled=True)
    expected = [6, size, 7, size]
    assert [len(r.payload) for r in read()] == expected
    assert [len(r.payload) for r in read(maxBytesPerTask="1000000")] == expected
    assert first.entry == read()[1].entry, "a message has the position of its last chunk"


def test_a_huge_backlog_of_a_partition_is_read_by_several_tasks(
    spark: SparkSession, read: Read, topic: LiveTopic
) -> None:
    sent = topic.send(numbered(200))
    frame = spark.read.format("pulsar").options(**base(topic), maxBytesPerTask="1000").load()
    assert frame.rdd.getNumPartitions() > 6
    assert payloads(frame.collect()) == sorted(s.payload or b"" for s in sent)


def test_several_topics_and_a_pattern_are_read(
    read: Read, topic: LiveTopic, spark: SparkSession
) -> None:
    other = LiveTopic(topic.settings, "facts_of_old", 1)
    fiction = LiveTopic(topic.settings, "fiction", 1)
    for each in (topic, other, fiction):
        each.send([Outgoing(each.name.encode())])
    only = {"topic": ""}
    assert payloads(read(**only, topics=f"{topic.name}, {fiction.name}")) == sorted(
        [topic.name.encode(), fiction.name.encode()]
    )
    found = read(**only, topicsPattern=topic.name.replace("facts", "fact.*"))
    assert {r.topic for r in found} == {topic.name, other.name}


class Stream:
    """Streams with limits into a folder of Parquet files; each `run` is a restart."""

    def __init__(self, spark: SparkSession, folder: Path, options: dict[str, str]) -> None:
        self._spark = spark
        self._folder = folder
        self._options = options

    def run(self, **options: str) -> list[dict[str, Any]]:
        """Catch up, and return the progress of each batch that had rows."""
        self._spark.dataSource.register(PulsarDataSource)
        reader = self._spark.readStream.format("pulsar").options(**{**self._options, **options})
        writer = reader.load().writeStream.option("checkpointLocation", str(self._folder / "c"))
        query = writer.trigger(availableNow=True).start(str(self._folder / "t"))
        query.awaitTermination(120)
        return [json.loads(p.json) for p in query.recentProgress if p.numInputRows]

    def rows(self) -> DataFrame:
        return self._spark.read.parquet(str(self._folder / "t"))


@pytest.fixture
def stream(spark: SparkSession, topic: LiveTopic, tmp_path: Path) -> Stream:
    return Stream(spark, tmp_path, {**base(topic), "subscription": "guard"})


def test_a_limit_of_messages_splits_a_backlog_into_batches(
    stream: Stream, topic: LiveTopic
) -> None:
    sent = topic.send(numbered(50))
    batches = stream.run(maxMessagesPerTrigger="20")
    assert [b["numInputRows"] for b in batches] == [20, 20, 10] or len(batches) == 3
    assert all(b["numInputRows"] <= 21 for b in batches)
    assert payloads(stream.rows().collect()) == sorted(s.payload or b"" for s in sent)


def test_a_limit_of_bytes_splits_a_backlog_into_batches(stream: Stream, topic: LiveTopic) -> None:
    sent = topic.send([Outgoing(bytes(10_000), key=f"{n}") for n in range(40)])
    batches = stream.run(maxBytesPerTrigger="110000")
    assert [b["numInputRows"] <= 11 for b in batches] == [True] * len(batches)
    assert 4 <= len(batches) <= 6
    assert stream.rows().count() == len(sent)


def test_limits_never_split_a_chunked_message(stream: Stream, topic: LiveTopic) -> None:
    size = 11 << 20
    for letter in (b"a", b"b"):
        produce(topic, letter * size, chunking_enabled=True)
        produce(topic, letter)
    stream.run(maxMessagesPerTrigger="1")
    assert sorted(len(r.payload) for r in stream.rows().collect()) == [1, 1, size, size]


def test_a_new_stream_may_begin_at_the_end_or_at_a_position(
    stream: Stream, topic: LiveTopic
) -> None:
    topic.send(numbered(10))
    assert stream.run(startingPosition="latest") == []
    topic.send(numbered(14, first=10))
    stream.run(startingPosition="latest")
    assert payloads(stream.rows().collect()) == [b"10", b"11", b"12", b"13"]


def test_progress_reports_the_position_and_the_lag_of_the_stream(
    stream: Stream, topic: LiveTopic
) -> None:
    sent = topic.send(numbered(30))
    batches = [batch["sources"][0] for batch in stream.run(maxMessagesPerTrigger="12")]
    last = {
        f"{topic.name}-partition-{n}": {"ledger": m.ledger, "entry": m.entry}
        for n in (0, 1)
        for m in [max((s for s in sent if s.partition == n), key=lambda s: s[:4])]
    }
    end = batches[-1]["endOffset"]
    assert end.pop("estimate")["messages"] == batches[-1]["numInputRows"]
    assert end == {**last, topic.name: {"partitions": 2, "eras": []}}
    left = 30
    for batch in batches:
        left -= batch["numInputRows"]
        lag = {name: place.pop("entriesBehind") for name, place in batch["latestOffset"].items()}
        assert sum(lag.values()) == left
        assert all(
            (place.pop("bytesBehind") > 0) == (lag[name] > 0)
            for name, place in batch["latestOffset"].items()
        )
        assert batch["latestOffset"] == last


def test_an_offset_estimates_the_size_of_its_batch(topic: LiveTopic) -> None:
    """This also holds after an offset of an older version, which has no estimate."""
    reader = PulsarStreamReader(PulsarOptions.parse({**base(topic), "subscription": "guard"}))
    stood = reader.initialOffset()
    for payload, count, batched in ((b"x", 40, False), (b"x" * 5_000, 3, False), (b"x", 21, True)):
        topic.send([Outgoing(payload, key="same")] * count, batched=batched)  # in entries of 7
        stood = reader.latestOffset(stood, ReadAllAvailable())
        found = estimate_of(stood)
        assert found is not None
        assert found.messages == count
        content = len(payload) * count
        assert content < found.bytes < content + 100 * count, "not the mean of all messages"
        old = {name: place for name, place in stood.items() if name != "estimate"}
        assert from_json(old) == from_json(stood)
        assert reader.latestOffset(old, ReadAllAvailable()) == old, "there are no new messages"
        stood = old
    reader.stop()


def test_a_stream_never_goes_back_in_the_same_log(topic: LiveTopic) -> None:
    """A broker may report an earlier end while it loads a topic. A new cluster has another log."""
    last = max(s[1:3] for s in topic.send(numbered(20)) if s.partition == 0)
    name = f"{topic.name}-partition-0"
    reader = PulsarStreamReader(PulsarOptions.parse({**base(topic), "subscription": "guard"}))
    reader.initialOffset()

    def goes_on_from(ledger: int, entry: int) -> dict[str, int]:
        stood = to_json({name: Position(ledger, entry)})
        return reader.latestOffset(stood, ReadAllAvailable())[name]

    end = {"ledger": last[0], "entry": last[1]}
    assert goes_on_from(last[0], 0) == end
    assert goes_on_from(last[0], last[1] + 5) == {"ledger": last[0], "entry": last[1] + 5}
    assert goes_on_from(last[0] + 10_000, 0) == end
    reader.stop()


def test_the_subscription_of_a_stream_keeps_unread_messages(
    stream: Stream, topic: LiveTopic
) -> None:
    topic.send(numbered(10))
    stream.run()
    sent = topic.send(numbered(20, first=10))
    with PulsarAdmin(topic.settings.connection) as admin:
        for number in (0, 1):
            kept = admin.subscription(f"{topic.name}-partition-{number}", "guard")
            assert kept is not None
            assert kept < Position(*first_of(sent, number)[1:3])
