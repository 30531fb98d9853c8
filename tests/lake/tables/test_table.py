"""Tests the handle of one table. How it follows a replaced table is tested with the lake."""

from dataclasses import replace

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from lake.settings.settings import LakeSettings
from lake.tables.arrow import NEW
from lake.tables.lake import Lake
from lake.tables.spec import CHANGE_FEED, TableSpec
from lake.tables.table import Table, files_of_each
from pulsar_spark.schema import Column

SPEC = TableSpec(
    *("silver", "some", "A table", (Column("id", "bigint", "the key"),)),
    fields=frozenset({"name"}),
)


@pytest.fixture
def table(spark: SparkSession, settings: LakeSettings) -> Table:
    found = Lake(settings).table(SPEC)
    found.create({"ours": "1"})
    found.arrow.append([{"id": 1}])
    return found


def test_a_table_is_created_once(table: Table) -> None:
    assert table.create({"ours": "2"}).version() == 1
    assert table.log().metadata().configuration["ours"] == "1"
    assert table.log().metadata().description == "A table"


def test_a_property_is_set_and_removed(table: Table, spark: SparkSession) -> None:
    table.set_property(spark, "it's", "odd")
    assert table.arrow.configuration("it's") == "odd"
    table.set_property(spark, "it's", None)
    table.set_property(spark, "it's", None)
    assert table.arrow.configuration("it's") is None


def test_a_declared_column_is_added_and_null_in_older_rows(
    table: Table, spark: SparkSession, settings: LakeSettings
) -> None:
    columns = (Column("name", "string", "a name"), *SPEC.columns)
    later = Lake(settings).table(replace(SPEC, columns=columns))
    assert later.evolve(spark, later.log()) == ["name"]
    assert later.evolve(spark, later.log()) == []
    assert [tuple(row) for row in later.rows(spark).collect()] == [(None, 1)]
    assert later.rows(spark, 1).columns == ["id"]


def test_a_table_takes_over_the_rows_of_another(
    table: Table, spark: SparkSession, settings: LakeSettings
) -> None:
    other = Lake(settings).table(replace(SPEC, name="other"))
    other.create()
    assert {*files_of_each([table, other, Lake(settings).named("silver", "none")])} == {
        "silver.some",
        "silver.other",
    }
    swap = other.swap_from(table)
    swap.link()
    swap.commit()
    assert other.arrow.column("id").to_pylist() == [1]
    assert other.files().rows == 1


ALL_TYPES = """
  1 AS id, true AS b, 2S AS s, 'o''brien ü' AS t, X'00ff' AS x, 1.5F AS f, double('NaN') AS d,
  12345678901234567890.12BD AS n, date '0001-01-02' AS day,
  timestamp '9999-12-31 23:59:59.999999' AS at,
  array(named_struct('k', 'v', 'w', string(NULL)), NULL) AS a,
  map('k', array(1, NULL)) AS m, named_struct('at', timestamp '1969-01-01', 'x', X'01') AS st
"""


def test_rows_of_a_small_table_are_those_that_spark_reads(
    spark: SparkSession, settings: LakeSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also without the rows that a deletion vector hides. A larger table is read by Spark."""
    table = Lake(settings).table(TableSpec("silver", "all_types", "A table", ()))
    place = f"delta.`{table.path}`"
    spark.sql(
        f"CREATE TABLE {place} USING delta TBLPROPERTIES (delta.enableDeletionVectors = true) AS "
        f"SELECT {ALL_TYPES}"
    )
    names = spark.read.format("delta").load(table.path).columns
    others = ", ".join(f"NULL AS {name}" for name in names[1:])
    for statement in (
        f"INSERT INTO {place} SELECT 2 AS id, {others} UNION ALL SELECT 3, {others}",
        f"DELETE FROM {place} WHERE id = 3",
    ):
        spark.sql(statement)
        wanted, found = spark.read.format("delta").load(table.path), table.rows(spark)
        assert found.schema.simpleString() == wanted.schema.simpleString()
        assert sorted(map(repr, found.collect())) == sorted(map(repr, wanted.collect()))
        assert found.inputFiles() == [], "read by Spark"
    with monkeypatch.context() as patch:
        patch.setattr("lake.tables.arrow.SMALL_ROWS", 1)
        assert len(table.rows(spark).inputFiles()) == 2
    spark.sql(f"DELETE FROM {place}")
    assert table.rows(spark).collect() == []


@pytest.mark.parametrize("has_vectors", [True, pytest.param(False, marks=pytest.mark.nightly)])
def test_the_feed_is_exact_unless_a_version_changes_rows_by_deletion_vectors_only(
    spark: SparkSession, settings: LakeSettings, has_vectors: bool
) -> None:
    """Where it is exact, the last change of each key in the feed gives the rows of the version."""
    properties = {**CHANGE_FEED, "delta.enableDeletionVectors": str(has_vectors).lower()}
    table = Lake(settings).table(replace(SPEC, properties=properties))
    table.create()
    place = f"delta.`{table.path}`"
    for statement in (
        f"INSERT INTO {place} SELECT * FROM range(100)",
        f"DELETE FROM {place} WHERE id % 10 = 0",
        f"UPDATE {place} SET id = id + 1000 WHERE id < 5",
        f"MERGE INTO {place} AS t USING (SELECT id FROM range(50, 120)) AS s ON t.id = s.id "
        "WHEN MATCHED AND s.id < 60 THEN DELETE WHEN NOT MATCHED THEN INSERT *",
        "",  # an upsert without Spark, into files that have deletion vectors
        f"OPTIMIZE {place}",
        f"REORG TABLE {place} APPLY (PURGE)",
        f"RESTORE TABLE {place} TO VERSION AS OF 3",
    ):
        if statement:
            spark.sql(statement)
        else:
            table.arrow.upsert(pa.table({"id": [21, 500]}), ["id"], pa.table({"id": [33]}))
    rows = {0: set[int]()}
    for version in range(1, table.newest_version() + 1):
        rows[version] = {row.id for row in table.rows(spark, version).collect()}
        kept = table.changes(version)
        assert kept is not None
        if kept.of_rows:
            changes = table.arrow.last_changes(version, version, ["id"], ["id"], (10**6, 10**9))
            assert changes is not None
            found = set(rows[version - 1])
            for row in changes.to_pylist():
                change = found.add if row["_change_type"] in NEW else found.discard
                change(row["id"])
            assert (found == rows[version]) >= kept.is_exact, version
        else:
            assert rows[version] == rows[version - 1]
            assert kept.is_exact
    if not has_vectors:
        assert all(found and found.is_exact for found in map(table.changes, rows))
    assert table.changes(len(rows)) is None
