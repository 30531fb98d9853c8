"""`lakehouse metastore`: create the tables of a Hive metastore."""

import typer

from lakehouse.runtime.context import current

commands = typer.Typer(help="Set up the Hive metastore (LAKEHOUSE_METASTORE).")


@commands.command()
def init() -> None:
    """Create the tables of a new metastore in an empty PostgreSQL database.

    Spark and other engines that ask the database directly need nothing else. For a Hive metastore
    service, use Hive's own `schematool -initSchema`, which creates more tables.
    """
    from lakehouse.runtime.metastore import create, metastore_java
    from lakehouse.runtime.terminal import out

    with metastore_java(current.settings) as jvm:
        out.print(
            f"{current.settings.metastore} has Hive's tables, {create(jvm, current.settings)}."
        )
