"""Tests that a batch lands once in a bronze table, written by the driver or by Spark's tasks."""

import datetime as dt
import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from bronze import landing, upkeep
from lake.settings.settings import LakeSettings
from lake.streams.checkpoint import Checkpoint, claim_tables
from lake.tables.lake import Lake
from lake.tables.spec import TableSpec, bronze_table
from pulsar_spark.offsets import Estimate, OffsetJson, with_estimate
from pulsar_spark.schema import ENVELOPE_DDL

NAME = "orders"
QUERY = "its-id"
NOON = dt.datetime(2026, 1, 1, 12, 0, 0, 123456, tzinfo=dt.timezone.utc)


def begun(spark: SparkSession, settings: LakeSettings, table: TableSpec) -> Checkpoint:
    """Return the checkpoint of a query that Spark has started."""
    checkpoint = claim_tables(spark, Lake(settings), f"bronze.{NAME}", [table])
    (Path(checkpoint.path) / "metadata").write_text(json.dumps({"id": QUERY}))
    return checkpoint


def messages(spark: SparkSession, first: int, count: int) -> DataFrame:
    """Return messages of two partitions, the second with keys, times and properties."""
    sent = b"\xff\x00", NOON, NOON, NOON
    raw = b"\xff", [(b"n", b"\xff")], "properties"
    rows = [
        (NAME, 0, 1, n, 0, None, None, None, NOON, None, {}, None, *[None] * 3)
        if n % 2
        else (*(NAME, 1, 1, n, 0, f"schlüssel {n}"), *sent, {"n": str(n)}, 3, *raw)
        for n in range(first, first + count)
    ]
    return spark.createDataFrame(rows, ENVELOPE_DDL).repartition(2)


def planned(checkpoint: Checkpoint, batch: int, estimate: Estimate | None) -> None:
    """Plan a batch as the source and Spark do; older versions did so without an estimate."""
    stored: OffsetJson = {f"persistent://public/default/{NAME}": {"ledger": 1, "entry": batch}}
    if estimate:
        stored = with_estimate(stored, estimate)
    log = Path(checkpoint.path, "offsets")
    log.mkdir(exist_ok=True)
    (log / str(batch)).write_text(f"v1\n{{}}\n{json.dumps(stored)}")


def finished(checkpoint: Checkpoint, batch: int) -> None:
    """Commit a batch as Spark does."""
    log = Path(checkpoint.path, "commits")
    log.mkdir(exist_ok=True)
    (log / str(batch)).touch()


class Lander:
    """Lands batches of one table and counts how often messages are read."""

    def __init__(self, spark: SparkSession, settings: LakeSettings) -> None:
        self._spark = spark
        self._settings = settings
        self._read = settings.home_dir / "read"  # a byte for each message, also of failed tasks
        self._read.parent.mkdir(exist_ok=True)
        self._read.touch()
        self._sent = self._batches = 0
        self._path = Lake(settings).table(bronze_table(NAME)).path
        self.checkpoint = begun(spark, settings, bronze_table(NAME))
        self.restart()

    def restart(self) -> None:
        """Start the query again."""
        self._landing = self._new()

    def _new(self) -> landing.Landing:
        lake = Lake(self._settings)
        return landing.Landing(lake, lake.table(bronze_table(NAME)), self.checkpoint)

    def land(self, count: int, estimate: Estimate | None, *, size: int = 1) -> tuple[str, int]:
        """Land a batch twice, as after a crash that lost its commit.

        Returns:
            Which way the batch took, and how many of its messages were read.
        """
        payload = F.expr(f"cast(repeat('x', {size}) AS binary)")
        rows = messages(self._spark, self._sent, count).withColumn("payload", payload)
        batch, read = self._batches, self._read.stat().st_size
        planned(self.checkpoint, batch, estimate)
        self._landing.land(rows.mapInArrow(self._counted, rows.schema), self.checkpoint.span(batch))
        read = self._read.stat().st_size - read
        table = DeltaTable(self._path)
        by = "driver" if "delta-rs" in table.history(1)[0]["engineInfo"] else "tasks"
        self._new().land(rows, self.checkpoint.span(batch))
        assert DeltaTable(self._path).version() == table.version()
        assert DeltaTable(self._path).transaction_version(QUERY) == batch
        finished(self.checkpoint, batch)
        self._sent += count
        self._batches += 1
        return by, read

    def check(self) -> None:
        """Check that each message has landed once."""
        self.checkpoint.release()
        found = DeltaTable(self._path).to_pyarrow_table(columns=["entry"])["entry"].to_pylist()
        assert sorted(found) == list(range(self._sent))

    @property
    def _counted(self) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
        file = str(self._read)

        def count(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for batch in batches:
                with open(file, "ab") as read:
                    read.write(b"." * batch.num_rows)
                yield batch

        return count


@pytest.fixture
def lander(
    spark: SparkSession, settings: LakeSettings, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Lander]:
    """A lander for which 20 messages are few, and which can hold 20,000 bytes in the driver."""
    monkeypatch.setattr(landing, "FEW", 20)
    monkeypatch.setattr(landing, "DRIVER_BYTES", 20_000)
    monkeypatch.setattr(landing, "GROWTH", 2)
    monkeypatch.setattr(landing, "ENOUGH_BYTES", 1)
    lander = Lander(spark, settings)
    yield lander
    lander.check()


@pytest.mark.parametrize("few", [True, False])
def test_messages_are_the_same_whether_the_driver_or_tasks_land_them(
    spark: SparkSession, settings: LakeSettings, *, few: bool
) -> None:
    lake, table = Lake(settings), bronze_table(NAME)
    checkpoint = begun(spark, settings, table)
    planned(checkpoint, 0, Estimate(40 if few else landing.FEW + 1, 4000))
    running = landing.Landing(lake, lake.table(table), checkpoint)
    running.land(messages(spark, 0, 40), checkpoint.span(0))
    checkpoint.release()
    there = DeltaTable(lake.table(table).path)
    assert ("delta-rs" in there.history(1)[0]["engineInfo"]) == few
    sent = [row.asDict() for row in messages(spark, 0, 40).collect()]
    for row in sent:
        row["payload"] = bytes(row["payload"]) if row["payload"] is not None else None
        row["properties"] = list(row["properties"].items())
        row["raw_key"] = bytes(row["raw_key"]) if row["raw_key"] else None
        row["raw_properties"] = row["raw_properties"] and [{"name": b"n", "value": b"\xff"}]
        row["publish_time"] = NOON
        for name in ("event_time", "order_time"):
            row[name] = NOON if row[name] else None
    found = there.to_pyarrow_table().to_pylist()
    assert sorted(found, key=lambda row: row["entry"]) == sorted(sent, key=lambda row: row["entry"])


def test_the_estimate_chooses_driver_or_tasks_and_each_message_is_read_once(lander: Lander) -> None:
    sizes = (5, 21, 60, 20, 0, 7, 80)
    ways = [lander.land(count, Estimate(count, 100)) for count in sizes]
    by = ["driver" if count <= 20 else "tasks" for count in sizes]
    assert ways == list(zip(by, sizes, strict=True))
    too_large = Estimate(5, landing.DRIVER_BYTES // landing.GROWTH + 1)
    assert lander.land(5, too_large) == ("tasks", 5)
    assert lander.land(5, None) == ("tasks", 5), "an older version planned the batch"
    assert lander.land(5, Estimate(5, 100)) == ("driver", 5)


def test_a_batch_with_more_messages_than_estimated_lands_once_and_the_next_is_not_read_twice(
    lander: Lander,
) -> None:
    wrong = Estimate(4, 100)
    by, read = lander.land(60, wrong)
    assert by == "tasks"
    assert read > 60, "the tasks read the batch again"
    assert lander.land(60, wrong) == ("tasks", 60)
    assert lander.land(3, wrong) == ("tasks", 3), "expected to be like the last batch"
    assert lander.land(3, wrong) == ("driver", 3)
    assert lander.land(40, wrong) == ("driver", 40), "twice as many still count as few"
    assert lander.land(3, Estimate(2_000, 100)) == ("tasks", 3), "the estimate is too high"


def test_a_batch_larger_in_memory_than_estimated_corrects_the_next_estimate(
    lander: Lander,
) -> None:
    highly_compressed = Estimate(9, 500)
    assert lander.land(9, highly_compressed, size=3_000) == ("driver", 9)
    assert lander.land(9, highly_compressed, size=3_000) == ("tasks", 9)
    assert lander.land(9, Estimate(9, 10), size=1) == ("driver", 9)


def test_a_batch_interrupted_by_the_drivers_death_must_be_far_smaller(
    lander: Lander,
) -> None:
    """The driver may have died because it could not hold the batch, and could die again."""
    few = Estimate(9, landing.DRIVER_BYTES // landing.GROWTH // 10)
    very_few = Estimate(9, landing.DRIVER_BYTES // landing.GROWTH // landing.CAUTION)
    ways = []
    for batch, estimate in enumerate((few, very_few, few)):
        planned(lander.checkpoint, batch, estimate)
        lander.restart()
        ways += [lander.land(9, estimate)]
    lander.restart()
    ways += [lander.land(9, few)]
    assert ways == [("tasks", 9), ("driver", 9), ("tasks", 9), ("driver", 9)]


def test_a_stream_reads_each_message_once_while_small_files_are_compacted(
    spark: SparkSession, settings: LakeSettings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(upkeep, "EVERY_BATCHES", 3)
    monkeypatch.setattr(upkeep, "MANY_SMALL_FILES", 2)
    lake, table = Lake(settings), bronze_table(NAME)
    checkpoint = begun(spark, settings, table)
    running = landing.Landing(lake, lake.table(table), checkpoint)
    path, copy = lake.table(table).path, str(tmp_path / "copy")

    def read_on() -> None:
        stream = spark.readStream.format("delta").load(path).select("entry").writeStream
        stream = stream.format("delta").option("checkpointLocation", str(tmp_path / "checkpoint"))
        stream.trigger(availableNow=True).start(copy).awaitTermination()

    for batch in range(8):
        planned(checkpoint, batch, Estimate(5, 500))
        running.land(messages(spark, batch * 5, 5), checkpoint.span(batch))
        if batch in (1, 4, 7):  # two batches late, with the compaction of 3 or 6 between
            read_on()
    checkpoint.release()
    assert len(DeltaTable(path).file_uris()) < 8
    read = DeltaTable(copy).to_pyarrow_table()["entry"].to_pylist()
    assert sorted(read) == list(range(40))
