"""`lakehouse savepoint`: name a moment of the lake, and bring tables and streams back to it."""

import datetime as dt
from typing import Annotated

import typer

from lakehouse import savepoints
from lakehouse.console import out, print_rows
from lakehouse.context import Format, lake
from lakehouse.run import require_broker, spark_session

commands = typer.Typer(help="Name moments of the lake, and go back to them.")
Name = Annotated[str, typer.Argument(help="Name of the savepoint.")]


@commands.command()
def create(name: Name) -> None:
    """Name the latest moment at which all tables and streams belong together.

    Streams may run. It can be restored while old versions of tables are kept (history_days).
    """
    require_broker(lake.settings)
    found = savepoints.create(lake.settings, lake.topics, name)
    out.print(f"Savepoint {name}: silver up to batch {found.silver_batch}.")


@commands.command("list")
def show(form: Format = "table") -> None:
    """Show all savepoints."""
    header = ("savepoint", "created", "restorable until", "silver batch", "tables")
    kept = dt.timedelta(days=lake.settings.history_days)
    rows = [
        (each.name, each.created_at, each.created_at + kept, each.silver_batch, len(each.versions))
        for each in savepoints.savepoints(lake.settings)
    ]
    print_rows(header, rows, form)


@commands.command()
def restore(name: Name) -> None:
    """Bring all tables and streams back to a savepoint; stop the streams, and gold, first.

    What was published since is read again when they start.
    """
    require_broker(lake.settings)
    with spark_session(lake.settings, "lakehouse-savepoint") as spark:
        savepoints.restore(spark, lake.settings, lake.topics, name)
    out.print(f"Tables and streams are back at savepoint {name}.")


@commands.command()
def drop(name: Name) -> None:
    """Forget a savepoint, and let the broker drop the messages that it kept."""
    require_broker(lake.settings)
    savepoints.drop(lake.settings, lake.topics, name)
    out.print(f"Savepoint {name} is dropped.")
