"""Registers the lake's tables for SQL: a table is a folder, the catalog only points at it."""

from pathlib import Path

from pyspark.sql import SparkSession

from bronze.settings import LakeSettings
from bronze.topics import TopicFile
from silver.tables import silver_tables
from silver.views import create_views

LAYERS = ("bronze", "silver", "gold")


def register(spark: SparkSession, settings: LakeSettings, topics: TopicFile) -> None:
    """Make all Delta tables below the lake's layers known as `<layer>.<table>`; idempotent.

    Silver's views are made too, when silver's tables are there.
    """
    for layer in LAYERS:
        folder = settings.lake_dir / layer
        folder.mkdir(parents=True, exist_ok=True)
        spark.sql(f"CREATE DATABASE IF NOT EXISTS {layer} LOCATION '{_literal(folder)}'")
        for table in sorted(path.parent for path in folder.glob("*/_delta_log")):
            spark.sql(
                f"CREATE TABLE IF NOT EXISTS {layer}.`{table.name}` "
                f"USING delta LOCATION '{_literal(table)}'"
            )
    if all(table.exists(settings) for table in silver_tables(topics)):
        create_views(spark, topics)


def _literal(path: Path) -> str:
    return str(path).replace("\\", "\\\\").replace("'", "\\'")
