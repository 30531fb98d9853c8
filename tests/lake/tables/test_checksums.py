"""Tests that Spark loads a table from the checksum file of a commit, without reading the log."""

import json
import uuid
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from lake.settings.settings import LakeSettings
from lake.tables import checksums
from lake.tables.lake import Lake
from lake.tables.spec import TableSpec
from pulsar_spark.schema import Column

TABLE = TableSpec(
    "bronze",
    "odd",
    'It\'s "odd": über',
    (Column("id", "bigint", "the key"), Column("a b", "struct<x: timestamp>", "odd, too")),
    properties={"delta.enableDeletionVectors": "true", "delta.enableChangeDataFeed": "true"},
)


def checksum(settings: LakeSettings, version: int) -> Path:
    return Path(Lake(settings).table(TABLE).path, "_delta_log", f"{version:020d}.crc")


def in_order(protocol: dict[str, Any]) -> dict[str, Any]:
    """Return a protocol with its features, which are a set, in order."""
    return {name: sorted(x) if isinstance(x, list) else x for name, x in protocol.items()}


def seen(spark: SparkSession, settings: LakeSettings) -> tuple[dict[str, Any], int]:
    """Return what Spark learns of a table it has not seen yet, and how many jobs this took."""
    java, context, group = spark._jvm, spark.sparkContext, uuid.uuid4().hex  # noqa: SLF001
    delta = java.org.apache.spark.sql.delta.DeltaLog
    delta.clearCache()
    context.setJobGroup(group, group)
    snapshot = delta.forTable(spark._jsparkSession, Lake(settings).table(TABLE).path).update(  # noqa: SLF001
        False, java.scala.Option.empty(), java.scala.Option.empty()
    )
    known = {
        "metadata": json.loads(snapshot.metadata().json())["metaData"],
        "protocol": in_order(json.loads(snapshot.protocol().json())["protocol"]),
    }
    jobs = len(context.statusTracker().getJobIdsForGroup(group))
    context.setLocalProperty("spark.jobGroup.id", None)
    return {**known, "files": snapshot.numOfFiles(), "bytes": snapshot.sizeInBytes()}, jobs


def test_a_checksum_file_agrees_with_the_log_and_saves_a_job(
    spark: SparkSession, settings: LakeSettings
) -> None:
    Lake(settings).table(TABLE).create()
    table = Lake(settings).table(TABLE).arrow
    for step, version in ((lambda: None, 0), (lambda: table.append([{"id": 1}]), 1)):
        step()
        with_checksum, jobs = seen(spark, settings)
        assert jobs == 0
        checksum(settings, version).unlink()
        assert seen(spark, settings)[0] == with_checksum
    assert with_checksum["files"] == 1
    assert seen(spark, settings)[1] > 0, "without a checksum file Spark needs a job"


def test_spark_continues_from_a_checksum_file(spark: SparkSession, settings: LakeSettings) -> None:
    Lake(settings).table(TABLE).create()
    table = Lake(settings).table(TABLE).arrow
    for n in range(3):
        table.append([{"id": n}, {"id": n + 10}])
    spark.sql(f"UPDATE delta.`{Lake(settings).table(TABLE).path}` SET id = id + 100 WHERE id = 2")
    spark.sql(f"DELETE FROM delta.`{Lake(settings).table(TABLE).path}` WHERE id IN (0, 10)")
    by_spark = json.loads(checksum(settings, 5).read_text())
    table.append([{"id": 7}])
    ours = json.loads(checksum(settings, 6).read_text())
    assert ours["numFiles"] == by_spark["numFiles"] + 1
    assert ours["protocol"] == in_order(by_spark["protocol"])
    assert ours["metadata"] == by_spark["metadata"]
    rows = spark.read.format("delta").load(Lake(settings).table(TABLE).path).select("id").collect()
    assert sorted(row.id for row in rows) == [1, 7, 11, 12, 102]
    checksum(settings, 6).unlink()
    assert seen(spark, settings)[0]["bytes"] == ours["tableSizeBytes"]


def test_old_checksum_files_are_deleted(
    spark: SparkSession, settings: LakeSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checksums, "KEPT_VERSIONS", 2)
    Lake(settings).table(TABLE).create()
    table = Lake(settings).table(TABLE).arrow
    for n in range(5):
        table.append([{"id": n}])
    assert [n for n in range(6) if checksum(settings, n).exists()] == [4, 5]
    table.compact(1 << 20)
    assert [n for n in range(7) if checksum(settings, n).exists()] == [5, 6]
