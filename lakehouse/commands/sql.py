"""`lakehouse sql` and `sql-user`: run a statement, and decide who may log in to the endpoint."""

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from lake.settings.roles import Role
from lakehouse.runtime.context import Format, current

commands = typer.Typer(help="Manage the users of the SQL endpoint.")
Name = Annotated[str, typer.Argument(help="Name of the user: letters, digits and . _ @ -")]
ROLES = "reader (sees gold), analyst (also silver, with personal fields masked) or owner (all)"


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
def add(
    name: Name,
    role: Annotated[
        Role | None,
        typer.Option(
            help=f"What the user may do: {ROLES}. Without it, an existing user keeps the role; a "
            "new one becomes an owner if the endpoint listens on loopback, and else a reader."
        ),
    ] = None,
    generate: Annotated[
        Path | None,
        typer.Option(
            help="Generate a password into this file, which only its owner can read, or take the "
            "password from it if it exists."
        ),
    ] = None,
) -> None:
    """Let a user log in with a password, which is asked for here or read from stdin.

    The password of an existing user is replaced.
    """
    from lakehouse.runtime.terminal import out
    from lakehouse.sql.users import add_user, generated_password
    from pulsar_spark.log_masking import hide

    if generate is not None:
        password = generated_password(generate)
    elif sys.stdin.isatty():
        password = typer.prompt("Password", hide_input=True, confirmation_prompt=True)
    else:
        password = sys.stdin.readline().rstrip("\r\n")
    has = add_user(current.settings, name, hide(password), role)
    out.print(f"{name} can log in as {has} from the next connection on.", highlight=False)


@commands.command("role")
def role(
    name: Name,
    role: Annotated[Role, typer.Argument(help=f"What the user may do: {ROLES}.")],
) -> None:
    """Give a user another role. The user's open connections end within seconds."""
    from lakehouse.runtime.terminal import out
    from lakehouse.sql.users import change_role

    change_role(current.settings, name, role)
    out.print(f"{name} is now {role}.", highlight=False)


@commands.command("remove")
def remove(name: Name) -> None:
    """Stop a user from logging in. The user's open connections end within seconds."""
    from lakehouse.runtime.terminal import out
    from lakehouse.sql.users import remove_user

    remove_user(current.settings, name)
    out.print(f"{name} can no longer log in.", highlight=False)


@commands.command("list")
def show(form: Format = "table") -> None:
    """Show the users who may log in, and their roles."""
    from lakehouse.runtime.terminal import print_rows
    from lakehouse.sql.users import read_users

    known = read_users(current.settings)
    print_rows(("user", "role"), [(name, each.rights) for name, each in known.items()], form)
