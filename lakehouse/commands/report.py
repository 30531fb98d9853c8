"""`lakehouse report` and `console`: web pages about the lake."""

import datetime as dt
from pathlib import Path
from typing import Annotated

import typer

from lakehouse.commands.streams import Actions
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
    from lakehouse.runtime.terminal import out, step

    if docs:
        with step("Writing the docs of the models"):
            write_docs(current.settings)
    now = dt.datetime.now(dt.timezone.utc)
    with step("Writing the report"):
        page = write_report(current.lake, out_file, now=now)
    out.print(str(page), soft_wrap=True)


def console(console_actions: Actions = None) -> None:
    """Serve the console until Ctrl-C: web pages about the flow, the streams and the tables.

    `lakehouse up` serves it as well. Alone, it shows a lake that is stopped, or whose streams run
    as jobs of a cluster.
    """
    import contextlib
    import threading

    from lakehouse.console.server import console
    from lakehouse.runtime.terminal import err

    current.allow_actions(console_actions)
    current.choose_ports(broker=False)
    with contextlib.suppress(KeyboardInterrupt), console(current.lake) as address:
        err.print(f"Console: [bold]{address}[/bold]  Press Ctrl-C to stop.")
        threading.Event().wait()
