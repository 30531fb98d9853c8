"""Registers the lake's tables for SQL: a table is a folder, the catalog only points at it."""

from pathlib import Path
from urllib.parse import unquote, urlparse

from pyspark.sql import SparkSession

from bronze.errors import SettingsError
from bronze.settings import LakeSettings
from bronze.storage import SCHEME, in_bucket
from bronze.tables import delta_tables
from bronze.topics import TopicFile
from gold.tables import BUILT, CUTS, RUNS
from silver.tables import silver_tables
from silver.views import create_views

LAYERS = ("bronze", "silver", "gold", BUILT)


def register(spark: SparkSession, settings: LakeSettings, topics: TopicFile) -> None:
    """Make all Delta tables below the lake's layers known as `<layer>.<table>`; idempotent.

    Silver's views are made too, when silver's tables are there.

    Raises:
        SettingsError: the catalog is a metastore that has another lake's tables.
    """
    for own in (CUTS, RUNS):
        own.create(settings)
    for layer in LAYERS:
        place = f"{settings.tables}/{layer}"
        if not in_bucket(settings):
            Path(place).mkdir(parents=True, exist_ok=True)
        spark.sql(f"CREATE DATABASE IF NOT EXISTS {layer} LOCATION '{literal(place)}'")
        _require_ours(spark, layer, place)
        for name, table in delta_tables(settings, layer).items():
            spark.sql(
                f"CREATE TABLE IF NOT EXISTS {layer}.`{name}` "
                f"USING delta LOCATION '{literal(table)}'"
            )
    if all(table.exists(settings) for table in silver_tables(topics)):
        create_views(spark, topics)


def _require_ours(spark: SparkSession, layer: str, folder: str) -> None:
    """In a metastore there may be the databases of another lake, whose tables would be read."""
    known = spark.catalog.getDatabase(layer).locationUri
    found = known if known.startswith(SCHEME) else unquote(urlparse(known).path)
    if found != folder:
        message = (
            f"The metastore has a database {layer} at {known}, and not at {folder}: it belongs to "
            "another lake. Give each lake a metastore of its own (LAKEHOUSE_METASTORE)."
        )
        raise SettingsError(message)


def literal(path: str) -> str:
    """A path between the quotes of a SQL string."""
    return path.replace("\\", "\\\\").replace("'", "\\'")
