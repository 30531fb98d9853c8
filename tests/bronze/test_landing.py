"""One batch into a bronze table: by the driver or by Spark's tasks, and once."""

import datetime as dt
import json
from pathlib import Path

import pytest
from deltalake import DeltaTable
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from bronze import landing, upkeep
from bronze.checkpoint import Checkpoint, claim_tables
from bronze.envelope import ENVELOPE_DDL
from bronze.settings import LakeSettings
from bronze.tables import TableSpec, bronze_table

NAME = "orders"
QUERY = "its-id"
NOON = dt.datetime(2026, 1, 1, 12, 0, 0, 123456, tzinfo=dt.timezone.utc)


def begun(spark: SparkSession, settings: LakeSettings, table: TableSpec) -> Checkpoint:
    """The checkpoint of a query that Spark has started."""
    checkpoint = claim_tables(spark, settings, f"bronze.{NAME}", [table])
    (Path(checkpoint.path) / "metadata").write_text(json.dumps({"id": QUERY}))
    return checkpoint


def messages(spark: SparkSession, first: int, count: int) -> DataFrame:
    """Of two partitions, the second with keys, times and properties."""
    sent = b"\xff\x00", NOON, NOON, NOON
    raw = b"\xff", [(b"n", b"\xff")], "properties"
    rows = [
        (NAME, 0, 1, n, 0, None, None, None, NOON, None, {}, None, *[None] * 3)
        if n % 2
        else (*(NAME, 1, 1, n, 0, f"schlüssel {n}"), *sent, {"n": str(n)}, 3, *raw)
        for n in range(first, first + count)
    ]
    return spark.createDataFrame(rows, ENVELOPE_DDL).repartition(2)


def test_few_messages_are_appended_by_the_driver_and_many_by_spark(
    spark: SparkSession, settings: LakeSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(landing, "FEW", 20)
    table = bronze_table(NAME)
    checkpoint = begun(spark, settings, table)
    running = landing.Landing(settings, table, checkpoint)
    path = table.path(settings)
    writers, first = [], 0
    for batch, count in enumerate((5, 21, 60, 20, 0, 7, 80)):
        rows = messages(spark, first, count)
        first += count
        running.land(rows, batch)
        version = DeltaTable(path).version()
        landing.Landing(settings, table, checkpoint).land(rows, batch)  # as after a crash
        assert DeltaTable(path).version() == version
        assert DeltaTable(path).transaction_version(QUERY) == batch
        writers.append(DeltaTable(path).history(1)[0]["engineInfo"])
    checkpoint.release()
    # Behind a large batch another is expected, which shows in the first that is small again.
    assert ["delta-rs" in writer for writer in writers] == [
        *(True, False, False, False, True, True, False)
    ]
    there = sorted(DeltaTable(path).to_pyarrow_table().to_pylist(), key=lambda row: row["entry"])
    sent = sorted(
        (row.asDict() for row in messages(spark, 0, first).collect()), key=lambda row: row["entry"]
    )
    for row in sent:
        row["payload"] = bytes(row["payload"]) if row["payload"] is not None else None
        row["properties"] = list(row["properties"].items())
        row["raw_key"] = bytes(row["raw_key"]) if row["raw_key"] else None
        row["raw_properties"] = row["raw_properties"] and [{"name": b"n", "value": b"\xff"}]
        row["publish_time"] = NOON
        for name in ("event_time", "order_time"):
            row[name] = NOON if row[name] else None
    assert there == sent


def test_how_many_the_driver_takes_follows_from_how_large_the_last_ones_were(
    spark: SparkSession, settings: LakeSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(landing, "FEW_AT_FIRST", 5)
    monkeypatch.setattr(landing, "DRIVER_BYTES", 20_000)
    table = bronze_table(NAME)
    checkpoint = begun(spark, settings, table)
    running = landing.Landing(settings, table, checkpoint)
    writers, first = [], 0
    sizes = [(6, 1), (40, 1), (9, 1000), (30, 1000), (5, 1000), (5, 1000), (9, 1), (40, 1)]
    for batch, (count, size) in enumerate(sizes):
        payload = F.expr(f"cast(repeat('x', {size}) AS binary)")
        rows = messages(spark, first, count).withColumn("payload", payload)
        running.land(rows, batch)
        first += count
        writers.append(DeltaTable(table.path(settings)).history(1)[0]["engineInfo"])
    checkpoint.release()
    assert ["delta-rs" in writer for writer in writers] == [
        *(True, True, True, False, False, True, True, True)
    ]
    there = (
        DeltaTable(table.path(settings)).to_pyarrow_table(columns=["entry"])["entry"].to_pylist()
    )
    assert sorted(there) == list(range(first))


def test_a_start_knows_how_many_are_few_unless_a_batch_is_under_way(
    spark: SparkSession, settings: LakeSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a batch that was too large for the driver would be so at each start."""
    monkeypatch.setattr(landing, "FEW_AT_FIRST", 5)
    table = bronze_table(NAME)
    checkpoint = begun(spark, settings, table)
    logs = [Path(checkpoint.path, name) for name in ("offsets", "commits")]
    for log in logs:
        log.mkdir()
    reads = []
    collect = landing.Landing._collect  # noqa: SLF001 - to count what it is asked

    def counted(self: landing.Landing, batch: DataFrame) -> object:
        reads.append(self)
        return collect(self, batch)

    monkeypatch.setattr(landing.Landing, "_collect", counted)
    counts = []
    for batch, finished in enumerate((True, False, True)):
        running = landing.Landing(settings, table, checkpoint)
        reads.clear()
        running.land(messages(spark, batch * 9, 9), batch)
        counts.append(len(reads))
        for log in logs[: 1 + finished]:
            (log / str(batch)).touch()
    checkpoint.release()
    assert counts == [2, 1, 2], "first, known, after a batch that was not finished"


def test_a_stream_reads_each_message_once_while_small_files_become_one(
    spark: SparkSession, settings: LakeSettings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(upkeep, "EVERY_BATCHES", 3)
    monkeypatch.setattr(upkeep, "MANY_SMALL_FILES", 2)
    table = bronze_table(NAME)
    checkpoint = begun(spark, settings, table)
    running = landing.Landing(settings, table, checkpoint)
    path, copy = table.path(settings), str(tmp_path / "copy")

    def read_on() -> None:
        stream = spark.readStream.format("delta").load(path).select("entry").writeStream
        stream = stream.format("delta").option("checkpointLocation", str(tmp_path / "checkpoint"))
        stream.trigger(availableNow=True).start(copy).awaitTermination()

    for batch in range(8):
        running.land(messages(spark, batch * 5, 5), batch)
        if batch in (1, 4, 7):  # behind two, with the compaction of batch 3 between, and of 6
            read_on()
    checkpoint.release()
    assert len(DeltaTable(path).file_uris()) < 8
    read = DeltaTable(copy).to_pyarrow_table()["entry"].to_pylist()
    assert sorted(read) == list(range(40))
