"""`lakehouse sql`: through the running endpoint, or with a Spark of its own when none runs."""

from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import Row

from bronze.failures import explain
from bronze.settings import LakeSettings
from bronze.topics import TopicFile
from gold.catalog import register
from gold.endpoint import SqlError, endpoint_running, query_endpoint
from lakehouse.run import spark_session


def query(
    settings: LakeSettings, topics: TopicFile, sql: str
) -> tuple[list[str], list[tuple[Any, ...]]]:
    """Column names and rows of a statement.

    Raises:
        SqlError: Spark refused the statement.
    """
    if endpoint_running(settings):
        return query_endpoint(settings, sql)
    with spark_session(settings, "lakehouse-sql") as spark:
        register(spark, settings, topics)
        try:
            result = spark.sql(sql)
            return result.columns, [tuple(map(_plain, row)) for row in result.collect()]
        except PySparkException as error:
            raise SqlError(explain(error)) from error


def _plain(value: Any) -> Any:
    return value.asDict(recursive=True) if isinstance(value, Row) else value
