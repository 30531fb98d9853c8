"""Tests `writeStream.format("pulsar")`; the source reads the messages back."""

import datetime as dt
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql.types import StructType
from topic import LiveTopic

from lake.settings.settings import LakeSettings
from lake.streams.failures import explain
from lakehouse.runtime.broker import Broker
from pulsar_spark.broker.admin import PulsarAdmin
from pulsar_spark.errors import SettingsError
from pulsar_spark.sink import ROWS_BITS, SinkOptions
from pulsar_spark.source import PulsarDataSource

INSTANT = dt.datetime(2026, 1, 2, 3, 4, 5, 678_000, tzinfo=dt.timezone.utc)
ROWS = "key string, payload binary, event_time timestamp, properties map<string,string>"
GOOD = {
    "serviceUrl": "pulsar://127.0.0.1:6650",
    "adminUrl": "http://127.0.0.1:8080",
    "topic": "persistent://a/b/c",
}


@pytest.fixture
def topic(spark: SparkSession, broker: Broker, settings: LakeSettings) -> LiveTopic:
    spark.dataSource.register(PulsarDataSource)
    with PulsarAdmin(settings.connection) as admin:
        admin.ensure_namespace(settings.pulsar_namespace)
        admin.deduplicate(settings.pulsar_namespace)  # existing topics learn of it later
    return LiveTopic(settings, "out", 3)


def options(topic: LiveTopic) -> dict[str, str]:
    return {**topic.settings.connection.options(), "topic": topic.name}


def there(spark: SparkSession, topic: LiveTopic) -> list[Row]:
    rows = spark.read.format("pulsar").options(**options(topic)).load().collect()
    return sorted(rows, key=lambda row: (row.partition, row.ledger, row.entry))


class Out:
    """A stream from a Delta table to the topic, which each `run` restarts."""

    def __init__(self, spark: SparkSession, topic: LiveTopic, folder: Path) -> None:
        self._spark = spark
        self._topic = topic
        self.checkpoint = folder / "checkpoint"
        self._table = str(folder / "table")

    def add(self, rows: list[tuple[Any, ...]]) -> None:
        frame = self._spark.createDataFrame(rows, ROWS).coalesce(1)
        frame.write.format("delta").mode("append").save(self._table)

    def run(self) -> None:
        writer = self._spark.readStream.format("delta").load(self._table).writeStream
        writer = writer.format("pulsar").options(**options(self._topic), producerName="out")
        writer = writer.option("checkpointLocation", str(self.checkpoint))
        query = writer.trigger(availableNow=True).start()
        query.awaitTermination(120)
        error = query.exception()
        assert error is None, explain(error)


def rows(count: int, first: int = 0) -> list[tuple[Any, ...]]:
    return [
        (f"key-{n % 7}", f"payload {n}".encode(), INSTANT, {"n": str(n)})
        for n in range(first, count)
    ]


def test_a_message_has_the_key_time_and_properties_of_its_row(
    spark: SparkSession, topic: LiveTopic, tmp_path: Path
) -> None:
    out = Out(spark, topic, tmp_path)
    out.add([*rows(20), (None, None, None, None)])
    out.run()
    found = there(spark, topic)
    assert sorted((r.key or "", bytes(r.payload)) for r in found) == sorted(
        [(key, payload) for key, payload, *_ in rows(20)] + [("", b"")]
    )
    for row in found:
        if row.key:
            assert row.event_time.astimezone(dt.timezone.utc) == INSTANT
            assert bytes(row.payload) == f"payload {row.properties['n']}".encode()
        else:
            assert row.event_time is None
            assert row.properties == {}
    homes: dict[str, set[int]] = {}
    for row in found:
        homes.setdefault(row.key, set()).add(row.partition)
    assert all(len(partitions) == 1 for partitions in homes.values())


def test_a_replayed_batch_adds_nothing(
    spark: SparkSession, topic: LiveTopic, tmp_path: Path
) -> None:
    """The driver dies after the messages are sent and before the batch is committed."""
    out = Out(spark, topic, tmp_path)
    out.add(rows(30))
    out.run()
    out.add(rows(50, first=30))
    out.run()
    last = max(int(f.name) for f in (out.checkpoint / "commits").iterdir() if f.name.isdigit())
    for file in (out.checkpoint / "commits").glob(f"*{last}*"):
        file.unlink()
    out.run()
    assert sorted(bytes(r.payload) for r in there(spark, topic)) == sorted(r[1] for r in rows(50))


def test_rows_may_name_their_partition(spark: SparkSession, topic: LiveTopic) -> None:
    frame: DataFrame = spark.range(9).selectExpr(
        "cast(id as string) as payload", "cast(id % 3 as int) as partition"
    )
    frame.write.format("pulsar").mode("append").options(**options(topic)).save()
    for row in there(spark, topic):
        assert int(row.payload) % 3 == row.partition


def test_a_batch_write_with_an_id_adds_nothing_when_it_is_repeated(
    spark: SparkSession, topic: LiveTopic
) -> None:
    """This is how `foreachBatch` uses it."""
    frame = spark.range(9).selectExpr("cast(id as string) as payload").coalesce(2)
    for batch in (1, 1, 2):
        writer = frame.write.format("pulsar").mode("append").options(**options(topic))
        writer.option("producerName", "mine").option("batchId", str(batch)).save()
    found = [(int(row.payload), row.partition) for row in there(spark, topic)]
    by_task = [range(4), range(4, 9)]
    assert sorted(found) == sorted(
        (payload, ((batch << ROWS_BITS) + number) % 3)
        for batch in (1, 2)
        for task in by_task
        for number, payload in enumerate(task)
    )


def test_rows_may_or_may_not_have_a_key_and_a_partition(
    spark: SparkSession, topic: LiveTopic
) -> None:
    """All rows are in one task, whose producers send to the same partitions."""
    frame = spark.range(30).selectExpr(
        "cast(id as string) as payload",
        "CASE id % 3 WHEN 0 THEN cast(id as string) END as key",
        "CASE id % 3 WHEN 1 THEN 2 END as partition",
    )
    for _ in range(2):
        writer = frame.coalesce(1).write.format("pulsar").mode("append").options(**options(topic))
        writer.option("producerName", "mine").option("batchId", "1").save()
    found = {int(row.payload): row for row in there(spark, topic)}
    assert len(there(spark, topic)) == len(found) == 30
    assert {found[number].partition for number in range(1, 30, 3)} == {2}
    assert {row.partition for row in found.values()} == {0, 1, 2}


def test_an_unsuitable_schema_or_option_is_refused_by_name() -> None:
    fits = StructType().add("payload", "binary").add("key", "string")
    assert SinkOptions.parse(GOOD, fits).producer_name is None
    with pytest.raises(SettingsError, match="Unknown option 'topicc'"):
        SinkOptions.parse({**GOOD, "topicc": "x"}, fits)
    with pytest.raises(SettingsError, match="'topic': use the full name"):
        SinkOptions.parse({**GOOD, "topic": "c"}, fits)
    with pytest.raises(SettingsError, match="batchId: '7' must .* producerName must be set"):
        SinkOptions.parse({**GOOD, "batchId": "7"}, fits)
    with pytest.raises(SettingsError, match="Column 'price double' cannot be written.*payload"):
        SinkOptions.parse(GOOD, StructType().add("price", "double"))
    with pytest.raises(SettingsError, match="column 'payload' is missing.* have key"):
        SinkOptions.parse(GOOD, StructType().add("key", "string"))
