"""`lakehouse savepoint`: name a moment of the lake, and restore tables and streams to it."""

import datetime as dt
from typing import Annotated

import typer

from lakehouse.runtime.context import Format, current

commands = typer.Typer(
    help="Create savepoints of the lake, and restore tables and streams to them."
)
Name = Annotated[str, typer.Argument(help="Name of the savepoint.")]


@commands.command()
def create(name: Name) -> None:
    """Name the latest moment at which all tables and streams are consistent.

    Streams may keep running. The savepoint can be restored while old versions of tables are kept
    (history_days).
    """
    from lakehouse.operate import savepoints
    from lakehouse.runtime.broker import require_broker
    from lakehouse.runtime.console import out

    require_broker(current.settings)
    found = savepoints.create(current.lake, name)
    out.print(f"Savepoint {name} contains silver up to batch {found.silver_batch}.")


@commands.command("list")
def show(form: Format = "table") -> None:
    """Show all savepoints."""
    from lakehouse.operate import savepoints
    from lakehouse.runtime.console import print_rows

    header = ("savepoint", "created", "restorable until", "silver batch", "tables")
    kept = dt.timedelta(days=current.settings.history_days)
    rows = [
        (each.name, each.created_at, each.created_at + kept, each.silver_batch, len(each.versions))
        for each in savepoints.savepoints(current.lake.settings)
    ]
    print_rows(header, rows, form)


@commands.command()
def restore(name: Name) -> None:
    """Restore all tables and streams to a savepoint. Stop the streams and gold first.

    When they start again, they read what has been published since.
    """
    from lakehouse.operate import savepoints
    from lakehouse.runtime.broker import require_broker
    from lakehouse.runtime.console import out
    from lakehouse.runtime.run import spark_session

    require_broker(current.settings)
    with spark_session(current.settings, "lakehouse-savepoint") as spark:
        savepoints.restore(spark, current.lake, name)
    out.print(f"Tables and streams were restored to savepoint {name}.")


@commands.command()
def drop(name: Name) -> None:
    """Delete a savepoint, and let the broker drop the messages that it kept."""
    from lakehouse.operate import savepoints
    from lakehouse.runtime.broker import require_broker
    from lakehouse.runtime.console import out

    require_broker(current.settings)
    savepoints.drop(current.lake, name)
    out.print(f"Savepoint {name} was dropped.")
