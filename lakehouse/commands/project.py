"""`lakehouse init` and `plan`: make a project, and show what a change of it will do."""

from pathlib import Path
from typing import Annotated

import typer

from lakehouse.runtime.context import Format, current

NEXT = """Next:
  cd {folder}
  lakehouse up
  lakehouse publish --data sample    # in a second terminal
  lakehouse gold --available-now
Describe your own topics in topics.toml: docs/topic-files.md"""


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
) -> None:
    """Make a project: settings, a topic file, sample data and a dbt project."""
    from lakehouse.init import START, init

    files = init(name, example=example or START, dbt=dbt)
    typer.echo(f"Created {len(files)} files in {name}.")
    typer.echo(NEXT.format(folder=name))
    if dbt is not None:
        typer.echo("`lakehouse gold sources` writes sources for silver's tables into that project.")


def plan(form: Format = "table") -> None:
    """Show what the next start and the next build of gold will change, and why. Changes nothing.

    The exit code is 1 if a change is refused.
    """
    from gold.catalog import register
    from lake.tables.lake import Lake
    from lakehouse.operate.plan import COLUMNS, plan
    from lakehouse.runtime.console import err, print_rows
    from lakehouse.runtime.ports import with_own_sql_port
    from lakehouse.runtime.run import spark_session
    from lakehouse.up import sql_endpoint

    lake = Lake(with_own_sql_port(current.settings), current.topics)
    with spark_session(lake.settings, "lakehouse-plan") as spark:
        register(spark, lake)
        with sql_endpoint(spark, lake.settings):
            steps = plan(spark, lake)
    if not steps:
        err.print("Nothing will change.")
        return
    print_rows(COLUMNS, [step.cells() for step in steps], form)
    if any(step.is_refused for step in steps):
        raise typer.Exit(1)
