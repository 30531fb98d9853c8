"""`lakehouse status`: rows, freshness and lag of each table."""

import datetime as dt
from typing import Annotated

import typer

from lakehouse.runtime.context import Format, current
from pulsar_spark.errors import SettingsError


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
    from lake.tables.storage import require_bucket
    from lakehouse.operate.status import COLUMNS, lake_status
    from lakehouse.runtime.terminal import print_rows

    require_bucket(current.settings)
    if live:
        _watch(form, every)
        return
    now = dt.datetime.now(dt.timezone.utc)
    print_rows(COLUMNS, [s.cells(now) for s in lake_status(current.lake)], form)


def _watch(form: str, every: str) -> None:
    from gold.options import seconds
    from lakehouse.operate.status import lake_status
    from lakehouse.operate.watch import watch
    from silver.audit.totals import AuditTotals

    if form != "table":
        message = f"--watch shows a table. Remove --format {form}."
        raise SettingsError(message)
    audit = AuditTotals(current.lake)
    watch(lambda: lake_status(current.lake, audit), seconds(every))
