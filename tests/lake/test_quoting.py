"""Tests every way to refer in SQL to tables in folders whose names must be quoted."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from lake.quoting import delta_at, identifier, literal
from lake.settings.settings import load_settings
from lake.tables.lake import Lake
from lake.tables.spec import TableSpec
from lakehouse.erasure.purge import commit_nothing
from pulsar_spark.errors import SettingsError
from pulsar_spark.schema import Column

ODD = 'o\'brien "x" `y` ü#?*'
ID = Column("id", "bigint", "What it is")
ADDED = Column("a`b", "string", "Somebody's")
TABLE = TableSpec("silver", "odd", "A table", (ID,))
WIDER = TableSpec("silver", "odd", "A table", (ID, ADDED), fields=frozenset({"a`b"}))


def test_a_table_can_be_changed_and_read_whatever_its_folder_is_called(
    spark: SparkSession, tmp_path: Path
) -> None:
    settings = load_settings(home=tmp_path / "home", lake=tmp_path / ODD)
    odd = Lake(settings).table(TABLE)
    odd.create()
    table, path = odd.log(), odd.path
    odd.set_property(spark, "lakehouse.it's", 'one\'s \\ "own"')
    spark.sql(f"INSERT INTO {delta_at(path)} VALUES (1)")
    spark.sql(f"CREATE TABLE default.odd USING delta LOCATION {literal(path)}")
    try:
        assert spark.sql("SELECT id FROM default.odd").collect() == [(1,)]
        feed = f"SELECT {identifier('id')} FROM {delta_at(path)} VERSION AS OF 2"
        assert spark.sql(feed).collect() == [(1,)]
    finally:
        spark.sql("DROP TABLE default.odd")
    wider = Lake(settings).table(WIDER)
    assert wider.evolve(spark, wider.log()) == ["a`b"]
    commit_nothing(spark, path, "now's")
    table.update_incremental()
    known = table.metadata().configuration
    assert (known["lakehouse.it's"], known["lakehouse.purged"]) == ('one\'s \\ "own"', "now's")
    assert [field.name for field in table.schema().fields] == ["id", "a`b"]


@pytest.mark.parametrize("name", ["a%20b", "a\\b"])
def test_a_folder_name_that_delta_readers_misinterpret_is_refused(
    name: str, tmp_path: Path
) -> None:
    with pytest.raises(SettingsError, match="in its name, which Delta's readers misinterpret"):
        load_settings(lake=tmp_path / name)
