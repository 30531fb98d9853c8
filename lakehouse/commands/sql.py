"""`lakehouse sql`: run a statement on the running endpoint, or on a Spark of its own."""

from typing import Annotated, Any

import typer

from lakehouse.runtime.context import Format, current


def sql(
    statement: Annotated[
        str, typer.Argument(help='SQL statement, such as "select * from gold.reward_points".')
    ],
    form: Format = "table",
) -> None:
    """Run a SQL statement on the running endpoint, or on a Spark of its own if none is running."""
    from gold.sql_client import endpoint_running, query_endpoint
    from lakehouse.runtime.console import print_rows

    if endpoint_running(current.settings):
        columns, rows = query_endpoint(current.settings, statement)
    else:
        columns, rows = _query_spark(statement)
    if columns:
        print_rows(columns, rows, form)


def _query_spark(statement: str) -> tuple[list[str], list[tuple[Any, ...]]]:
    """Column names and rows of a statement.

    Raises:
        SqlError: Spark refused the statement.
    """
    from pyspark.errors import PySparkException
    from pyspark.sql import Row

    from gold.catalog import register
    from gold.sql_client import SqlError
    from lake.streams.failures import explain
    from lakehouse.runtime.run import spark_session

    with spark_session(current.settings, "lakehouse-sql") as spark:
        register(spark, current.lake)
        try:
            result = spark.sql(statement)
            rows = [
                tuple(
                    each.asDict(recursive=True) if isinstance(each, Row) else each for each in row
                )
                for row in result.collect()
            ]
        except PySparkException as error:
            raise SqlError(explain(error)) from error
        return result.columns, rows
