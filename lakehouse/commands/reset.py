"""`lakehouse reset`: delete the lake."""

from typing import Annotated

import typer

from lakehouse.runtime.context import current


def reset(
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask for confirmation.")] = False,
) -> None:
    """Delete all tables, checkpoints and messages of the embedded broker, after asking."""
    from lake.tables.storage import require_bucket
    from lakehouse.operate.reset import reset, what_goes
    from lakehouse.runtime.terminal import out

    require_bucket(current.settings)
    folders = what_goes(current.settings)
    if not folders:
        out.print("There is nothing to delete.")
        return
    out.print("This deletes:\n" + "\n".join(f"  {folder}" for folder in folders))
    if yes or typer.confirm("Delete?", default=False):
        reset(current.lake)
        out.print("Deleted.")
    else:
        out.print("Nothing was deleted.")
