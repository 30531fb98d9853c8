"""`lakehouse sql-user`: decide who may log in to the SQL endpoint."""

import sys
from typing import Annotated

import typer

from lakehouse.runtime.context import Format, current

commands = typer.Typer(help="Manage the users of the SQL endpoint.")
Name = Annotated[str, typer.Argument(help="Name of the user: letters, digits and . _ @ -")]


@commands.command("add")
def add(name: Name) -> None:
    """Let a user log in with a password, which is asked for here or read from stdin.

    The password of an existing user is replaced.
    """
    from lakehouse.runtime.console import out
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
    from lakehouse.runtime.console import out
    from lakehouse.sql.users import remove_user

    remove_user(current.settings, name)
    out.print(f"{name} can no longer log in.", highlight=False)


@commands.command("list")
def show(form: Format = "table") -> None:
    """Show the users who may log in."""
    from lakehouse.runtime.console import print_rows
    from lakehouse.sql.users import read_users

    print_rows(("user",), [(name,) for name in read_users(current.settings)], form)
