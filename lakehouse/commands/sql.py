"""`lakehouse sql` and `sql-user`: run a statement, and decide who may log in to the endpoint."""

import sys
from typing import Annotated, Any

import typer

from lakehouse.runtime.context import Format, current

commands = typer.Typer(help="Manage the users of the SQL endpoint.")
Name = Annotated[str, typer.Argument(help="Name of the user: letters, digits and . _ @ -")]


def sql(
    statement: Annotated[str, typer.Argument(help='SQL statement, such as "show tables in gold".')],
    form: Format = "table",
) -> None:
    """Run a SQL statement on the running endpoint, or on a Spark of its own if none is running."""
    from gold.sql_client import endpoint_running, query_endpoint
    from lakehouse.runtime.terminal import print_rows

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


@commands.command("add")
def add(name: Name) -> None:
    """Let a user log in with a password, which is asked for here or read from stdin.

    The password of an existing user is replaced.
    """
    from lakehouse.runtime.terminal import out
    from lakehouse.sql.users import add_user
    from pulsar_spark.log_masking import hide

    if sys.stdin.isatty():
        password = typer.prompt("Password", hide_input=True, confirmation_prompt=True)
    else:
        password = sys.stdin.readline().rstrip("\r\n")
    add_user(current.settings, name, hide(password))
    out.print(f"{name} can log in from the next connection on.", highlight=False)


@commands.command("remove")
def remove(name: Name) -> None:
    """Stop a user from logging in. Open connections stay open."""
    from lakehouse.runtime.terminal import out
    from lakehouse.sql.users import remove_user

    remove_user(current.settings, name)
    out.print(f"{name} can no longer log in.", highlight=False)


@commands.command("list")
def show(form: Format = "table") -> None:
    """Show the users who may log in."""
    from lakehouse.runtime.terminal import print_rows
    from lakehouse.sql.users import read_users

    print_rows(("user",), [(name,) for name in read_users(current.settings)], form)
