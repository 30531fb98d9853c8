"""`lakehouse report`: a web page about the lake."""

import datetime as dt
from pathlib import Path
from typing import Annotated

import typer

from lakehouse.runtime.context import current


def report(
    out_file: Annotated[
        Path | None,
        typer.Option(
            "--out",
            help="HTML file to write.",
            show_default="lakehouse-report.html in the home folder",
        ),
    ] = None,
    docs: Annotated[
        bool,
        typer.Option("--docs", help="Also write the docs of the dbt models and link to them."),
    ] = False,
) -> None:
    """Write a web page about the flow from topics to gold, and what the dbt project declares."""
    from gold.dbt.docs import write_docs
    from lakehouse.report import write_report
    from lakehouse.runtime.console import out

    if docs:
        write_docs(current.settings)
    now = dt.datetime.now(dt.timezone.utc)
    page = write_report(current.lake, out_file, now=now)
    out.print(str(page), soft_wrap=True)
