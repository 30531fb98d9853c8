"""`lakehouse init` and `plan`: make a project, and show what a change of it will do."""

from pathlib import Path
from typing import Annotated

import typer

from lakehouse.runtime.context import Format, current
from pulsar_spark.errors import SettingsError

NEXT = """Next:
  cd {folder}
  lakehouse up                       # console: {console}
  lakehouse publish --data sample    # in a second terminal
  lakehouse gold --available-now
Describe your own topics in topics.toml: docs/topic-files.md"""

CHECK = """Next:
  cd {folder}
  check topics.toml: keys and kinds are guesses
  lakehouse up                      # console: {console}
  lakehouse gold --available-now    # in a second terminal
Settings of the connection, such as certificates and tokens, stay in the environment."""


def init(
    name: Annotated[Path, typer.Argument(help="Folder of the new project.")],
    example: Annotated[
        str | None,
        typer.Option(help="Example to copy, such as bank. By default, a small one to start from."),
    ] = None,
    dbt: Annotated[
        Path | None,
        typer.Option(help="Existing dbt project to use. Nothing in it is changed."),
    ] = None,
    from_broker: Annotated[
        bool,
        typer.Option(
            "--from-broker",
            help="Draft the topic file from the topics of the broker that the settings name.",
        ),
    ] = False,
) -> None:
    """Make a project: settings, a topic file, sample data and a dbt project."""
    from lakehouse.init import START, console_of, init

    if from_broker and example:
        what = "--from-broker declares the topics of a broker, and --example those of an example."
        raise SettingsError(what, "Use one of them.")
    broker = current.settings if from_broker else None
    files = init(name, example=example or START, dbt=dbt, broker=broker)
    typer.echo(f"Created {len(files)} files in {name}.")
    typer.echo((CHECK if broker else NEXT).format(folder=name, console=console_of(name)))
    if dbt is not None:
        typer.echo("`lakehouse gold sources` writes sources for silver's tables into that project.")


def plan(form: Format = "table") -> None:
    """Show what the next start and the next build of gold will change, and why. Changes nothing.

    The exit code is 1 if a change is refused.
    """
    from gold.catalog import register
    from lake.tables.lake import Lake
    from lakehouse.operate.plan import COLUMNS, plan
    from lakehouse.runtime.ports import with_own_sql_port
    from lakehouse.runtime.run import spark_session
    from lakehouse.runtime.terminal import err, print_rows, step
    from lakehouse.up import sql_endpoint

    lake = Lake(with_own_sql_port(current.settings), current.topics)
    with spark_session(lake.settings, "lakehouse-plan") as spark:
        register(spark, lake)
        with sql_endpoint(spark, lake.settings), step("Comparing the project with the lake"):
            steps = plan(lake)
    if not steps:
        err.print("Nothing will change.")
        return
    print_rows(COLUMNS, [each.cells() for each in steps], form)
    if any(each.is_refused for each in steps):
        raise typer.Exit(1)
