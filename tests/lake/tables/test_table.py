"""Tests the handle of one table. How it follows a replaced table is tested with the lake."""

from dataclasses import replace

import pytest
from pyspark.sql import SparkSession

from lake.settings.settings import LakeSettings
from lake.tables.lake import Lake
from lake.tables.spec import TableSpec
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
