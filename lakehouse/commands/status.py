"""`lakehouse status`: how full, how fresh and how far behind each table is."""

import datetime as dt
from typing import Annotated

import typer

from bronze.errors import SettingsError
from lakehouse.context import Format, lake


def status(
    form: Format = "table",
    live: Annotated[
        bool, typer.Option("--watch", help="Refresh the table in place until Ctrl-C.")
    ] = False,
    every: Annotated[
        str, typer.Option(metavar="TIME", help="Time between two refreshes, with --watch.")
    ] = "2s",
) -> None:
    """Show rows, age of the newest message, lag, missing lookups and quarantine per table."""
    from bronze.storage import require_bucket
    from lakehouse.console import print_rows
    from lakehouse.status import COLUMNS, lake_status

    require_bucket(lake.settings)
    if live:
        _watch(form, every)
        return
    now = dt.datetime.now(dt.timezone.utc)
    print_rows(COLUMNS, [s.cells(now) for s in lake_status(lake.settings, lake.topics)], form)


def _watch(form: str, every: str) -> None:
    from gold.options import seconds
    from lakehouse.status import lake_status
    from lakehouse.watch import watch
    from silver.books import BookTotals

    if form != "table":
        message = f"--watch shows a table; drop --format {form}."
        raise SettingsError(message)
    books = BookTotals(lake.settings)
    watch(lambda: lake_status(lake.settings, lake.topics, books), seconds(every))
