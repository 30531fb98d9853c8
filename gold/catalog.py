"""Registers the lake's tables for SQL. A table is a folder, and the catalog only points to it."""

from pathlib import Path
from urllib.parse import unquote, urlparse

from pyspark.sql import SparkSession

from gold.sql_client import query_endpoint
from gold.tables import BUILT, CUT_OF, CUTS, GOLD, OWN, RUNS, published_tables
from lake.quoting import identifier, literal
from lake.settings.settings import LakeSettings
from lake.tables.lake import Lake
from lake.tables.storage import SCHEME, delete, folders_below, in_bucket
from lake.tables.table import Table
from pulsar_spark.errors import SettingsError
from silver.contract.tables import silver_tables
from silver.views import create_views

LAYERS = ("bronze", "silver", GOLD, BUILT)


def register(spark: SparkSession, lake: Lake) -> None:
    """Register all tables of the lake: of its layers, of dbt's own schemas, and marts. Idempotent.

    Also creates silver's views, if all of silver's tables exist.

    Raises:
        SettingsError: the catalog is a metastore with the tables of another lake.
    """
    for own in (CUTS, RUNS):
        lake.table(own).create()
    for layer in (*LAYERS, *own_schemas(lake.settings)):
        _register(spark, lake, layer, lake.tables(layer))
    elsewhere: dict[str, dict[str, Table]] = {}
    for table in published_tables(lake):
        if table.spec.layer != GOLD:
            elsewhere.setdefault(table.spec.layer, {})[table.spec.name] = table
    for schema, tables in elsewhere.items():
        _register(spark, lake, schema, tables)
    if all(lake.table(table).exists() for table in silver_tables(lake.topics)):
        create_views(spark, lake.topics)


def _register(spark: SparkSession, lake: Lake, schema: str, tables: dict[str, Table]) -> None:
    place = f"{lake.settings.tables}/{schema}"
    if not in_bucket(lake.settings):
        Path(place).mkdir(parents=True, exist_ok=True)
    spark.sql(f"CREATE DATABASE IF NOT EXISTS {identifier(schema)} LOCATION {literal(place)}")
    _require_ours(spark, schema, place)
    for name, table in tables.items():
        spark.sql(
            f"CREATE TABLE IF NOT EXISTS {identifier(schema)}.{identifier(name)} "
            f"USING delta LOCATION {literal(table.path)}"
        )


def _require_ours(spark: SparkSession, layer: str, folder: str) -> None:
    """Check that a database in the catalog is this lake's.

    A metastore may have the databases of another lake, whose tables would be read instead.
    """
    known = spark.catalog.getDatabase(layer).locationUri
    found = known if known.startswith(SCHEME) else unquote(urlparse(known).path)
    if found != folder:
        message = (
            f"The metastore's database {layer} is at {known} and not at {folder}, so it belongs to "
            "another lake. Give each lake its own metastore (LAKEHOUSE_METASTORE)."
        )
        raise SettingsError(message)


def drop_schema(settings: LakeSettings, schema: str) -> None:
    """Drop a schema in which dbt has worked beside gold, with its tables and views of silver."""
    for name in (schema, f"{CUT_OF}{schema}"):
        query_endpoint(settings, f"DROP SCHEMA IF EXISTS {identifier(name)} CASCADE")
        delete(settings, f"{settings.tables}/{name}")


def own_schemas(settings: LakeSettings) -> list[str]:
    """The schemas in which dbt has worked beside gold."""
    names = folders_below(settings, settings.tables)
    return [name for name in names if name.startswith(OWN) and name.isidentifier()]
