"""Tests that the tables of a lake are registered for SQL by their folders."""

from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake
from pyspark.sql import SparkSession
from topic import events

from gold.catalog import drop_schema, own_schemas, register
from lake.settings.settings import LakeSettings, load_settings
from lake.tables.lake import Lake
from pulsar_spark.errors import SettingsError


@pytest.fixture
def other(spark: SparkSession, tmp_path: Path) -> LakeSettings:
    """A lake that is not in the suite's catalog, with a table in an own schema of dbt."""
    settings = load_settings(home=tmp_path)
    path = Path(settings.table_path("gold_build_anna", "sales"))
    path.mkdir(parents=True)
    write_deltalake(path, pa.table({"id": [1]}))
    for name in ("gold_build_it's", "gold_builders"):
        (settings.lake_dir / name).mkdir()
    return settings


def test_own_schemas_of_dbt_are_those_with_its_prefix(other: LakeSettings) -> None:
    assert own_schemas(other) == ["gold_build_anna"]


def test_a_schema_is_dropped_with_its_views_of_silver_and_its_files(
    other: LakeSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []
    monkeypatch.setattr("gold.catalog.query_endpoint", lambda _, sql: said.append(sql))
    drop_schema(other, "gold_build_anna")
    assert said == [
        "DROP SCHEMA IF EXISTS `gold_build_anna` CASCADE",
        "DROP SCHEMA IF EXISTS `cut_gold_build_anna` CASCADE",
    ]
    assert own_schemas(other) == []


def test_tables_are_registered_and_those_of_another_lake_are_refused(
    spark: SparkSession, other: LakeSettings, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The layers have other names, because the catalog is that of the whole suite."""
    monkeypatch.setattr("gold.catalog.LAYERS", ("layer_of_catalog_test",))
    path = Path(other.table_path("layer_of_catalog_test", "sales"))
    path.mkdir(parents=True)
    write_deltalake(path, pa.table({"id": [1, 2]}))
    try:
        for _ in range(2):
            register(spark, Lake(other, events("o")))
        assert spark.table("layer_of_catalog_test.sales").count() == 2
        assert spark.table("gold_build_anna.sales").count() == 1
        elsewhere = load_settings(home=tmp_path / "elsewhere")
        with pytest.raises(SettingsError, match="belongs to another lake. Give each lake its own"):
            register(spark, Lake(elsewhere, events("o")))
    finally:
        for name in ("layer_of_catalog_test", "gold_build_anna"):
            spark.sql(f"DROP DATABASE IF EXISTS {name} CASCADE")
