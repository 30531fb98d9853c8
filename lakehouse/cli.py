"""The command `lakehouse`: global options, and the commands from `lakehouse/commands/`."""

from pathlib import Path
from typing import Annotated

import typer

from lake import DISTRIBUTION
from lake.settings.log_format import LogFormat
from lake.streams.command import exit_with
from lakehouse.commands import (
    doctor,
    forget,
    gold,
    messages,
    metastore,
    project,
    publish,
    quarantine,
    replay,
    report,
    reset,
    savepoint,
    sql,
    status,
    streams,
)
from lakehouse.runtime.context import current

app = typer.Typer(
    help="Load Pulsar topics into bronze, silver and gold Delta tables, and query them with SQL.",
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
)
app.add_typer(gold.commands, name="gold")
app.add_typer(metastore.commands, name="metastore", no_args_is_help=True)
app.add_typer(quarantine.commands, name="quarantine", no_args_is_help=True)
app.add_typer(savepoint.commands, name="savepoint", no_args_is_help=True)
app.add_typer(sql.commands, name="sql-user", no_args_is_help=True)
for command in (
    project.init,
    project.plan,
    *(streams.demo, streams.up, streams.bronze, streams.silver, streams.imports, streams.sinks),
    *(streams.pause, streams.resume, streams.warm_up, replay.replay),
    *(publish.publish, publish.publish_table, publish.create_topics, publish.generate),
    *(messages.produce, messages.consume),
    *(status.status, doctor.doctor, doctor.java_home, sql.sql, report.report, report.console),
    *(forget.forget, savepoint.backup, savepoint.restore, reset.reset),
):
    app.command()(command)


def _print_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        typer.echo(f"lakehouse {version(DISTRIBUTION)}")
        raise typer.Exit


@app.callback()
def common(
    home: Annotated[
        Path | None,
        typer.Option(
            help="Folder of the embedded runtime and the lake.", show_default=".lakehouse"
        ),
    ] = None,
    topics: Annotated[
        Path | None, typer.Option(help="Topic file (TOML).", show_default="the shop's topics")
    ] = None,
    log_format: Annotated[
        LogFormat | None, typer.Option(help="Format of logs on stderr.", show_default="text")
    ] = None,
    traces: Annotated[
        bool, typer.Option("--debug", help="Show the traceback of an error.")
    ] = False,
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version and exit."
        ),
    ] = False,
) -> None:
    """Settings come from options, then LAKEHOUSE_… variables, then lakehouse.toml."""
    current.traces = traces
    current.begin(home, topics, log_format)


def main() -> None:
    """Run the command line. Report an error as one message on stderr and an exit code."""
    exit_with(lambda: app(prog_name="lakehouse"), traces=lambda: current.traces)
