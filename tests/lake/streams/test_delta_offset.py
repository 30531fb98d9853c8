"""Tests that Spark continues a stream over a Delta table from a position that we write."""

import json
from pathlib import Path

import pytest
from deltalake import DeltaTable, write_deltalake
from pyarrow import table
from pyspark.sql import DataFrame, SparkSession

from lake.streams.delta_offset import offset_of_delta


@pytest.mark.parametrize(
    ("version", "snapshot", "expected"),
    [(1, False, {1, 2}), (2, False, {2}), (1, True, {0, 1, 2})],
)
def test_a_stream_reads_what_follows_the_position(
    spark: SparkSession, tmp_path: Path, version: int, snapshot: bool, expected: set[int]
) -> None:
    source = tmp_path / "source"
    for number in range(3):
        write_deltalake(source, table({"n": [number]}), mode="append")
    offset = offset_of_delta(DeltaTable(source), version, snapshot=snapshot)
    checkpoint = tmp_path / "checkpoint"
    found: list[int] = []

    def keep(rows: DataFrame, _: int) -> None:
        found.extend(row.n for row in rows.collect())

    (checkpoint / "offsets").mkdir(parents=True)
    (checkpoint / "commits").mkdir()
    (checkpoint / "metadata").write_text('{"id":"e6f4ad4c-17d6-4c10-a3d2-b5a6b8ad1c5c"}')
    metadata = json.dumps({"batchWatermarkMs": 0, "batchTimestampMs": 0, "conf": {}})
    (checkpoint / "offsets" / "0").write_text(f"v1\n{metadata}\n{offset}")
    (checkpoint / "commits" / "0").write_text('v1\n{"nextBatchWatermarkMs":0}')
    rows = spark.readStream.format("delta").load(str(source))
    writer = rows.writeStream.foreachBatch(keep).option("checkpointLocation", str(checkpoint))
    writer.trigger(availableNow=True).start().awaitTermination()
    assert set(found) == expected
    assert len(found) == len(expected)
