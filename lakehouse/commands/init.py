"""`lakehouse init`: make a project of one's own."""

from pathlib import Path
from typing import Annotated

import typer

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
