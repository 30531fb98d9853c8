"""`lakehouse gold`: build and publish gold, and evaluate its predictions."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from gold.errors import BuildError, GoldError
from gold.options import Every, FullRefresh, Select, seconds
from lake.streams.command import AvailableNow
from lakehouse.runtime.context import Format, current

if TYPE_CHECKING:
    from gold.dbt.results import BuildResult
    from lake.tables.lake import Lake

commands = typer.Typer()


@commands.callback(invoke_without_command=True)
def gold(
    context: typer.Context,
    available_now: AvailableNow = False,
    select: Select = None,
    full_refresh: FullRefresh = False,
    every: Every = "0s",
    serve: Annotated[
        bool, typer.Option("--serve", help="Also serve SQL, if no `lakehouse up` does.")
    ] = False,
) -> None:
    """Build, test and publish gold, and again whenever silver changes, unless --available-now.

    Readers see a build once all its tests have passed. Until then they see the one before. If a SQL
    endpoint is running, it is used. Otherwise a private one is started and used until one is.
    """
    if context.invoked_subcommand:
        return
    from gold.build import build_gold, has_snapshot, require_silver
    from gold.refresh import await_first_batch
    from lakehouse.runtime.terminal import step

    pause = seconds(every)
    require_silver(current.lake)
    if available_now or select or full_refresh:
        with _endpoint(serve=serve) as (lake, is_ours):
            if not is_ours and not has_snapshot(lake):
                with step("Waiting for the first batch of silver"):
                    await_first_batch(lake)
            try:
                with step("Building and testing gold"):
                    result = build_gold(lake, select=select, full_refresh=full_refresh)
            except BuildError as error:
                raise GoldError(_said(error)) from error
            _show_build(result)
        return
    _keep_fresh(pause, serve=serve)


def _keep_fresh(pause: float, *, serve: bool) -> None:
    from gold.metrics import gold_collector
    from gold.refresh import keep_fresh
    from lake.observe.exporter import serving
    from lake.streams.job import stop_signal

    needs = ["sql"] if serve else []
    while True:
        with _endpoint(serve=serve) as (lake, is_ours), contextlib.ExitStack() as stack:
            if is_ours:  # else the running `up` serves the metrics of gold, on the same port
                stack.enter_context(serving(lake.settings, gold_collector(lake), needs=needs))
            leave = _up_again if is_ours and not serve else None
            with stop_signal() as stop:
                for result in keep_fresh(lake, stop, pause, leave):
                    _show(result)
            if stop.is_set():
                raise KeyboardInterrupt  # sets the exit code


@contextlib.contextmanager
def _endpoint(*, serve: bool = False) -> Iterator[tuple[Lake, bool]]:
    """The running SQL endpoint, or one of our own if none is running.

    Args:
        serve: start our own at the address of the settings; else on a private port.

    Yields:
        The lake, with settings for the endpoint, and whether the endpoint is our own.
    """
    from gold.catalog import register
    from gold.sql_client import endpoint_running
    from lake.tables.lake import Lake
    from lakehouse.runtime.ports import with_own_sql_port
    from lakehouse.runtime.run import spark_session
    from lakehouse.up import sql_endpoint

    if not serve and endpoint_running(current.settings):
        yield current.lake, False
        return
    if serve:
        current.choose_ports(broker=False)
    settings = current.settings if serve else with_own_sql_port(current.settings)
    lake = Lake(settings, current.topics)
    with spark_session(settings, "lakehouse-gold") as spark:
        register(spark, lake)
        with sql_endpoint(spark, settings):
            yield lake, True


def _up_again() -> bool:
    """Whether the endpoint that readers use is running. There they see each build at once."""
    from gold.sql_client import endpoint_running

    return endpoint_running(current.settings)


def _show(result: BuildResult | GoldError) -> None:
    from rich.markup import escape

    from lakehouse.runtime.terminal import err

    if isinstance(result, GoldError):
        err.print(f"[red]Error:[/red] {escape(_said(result))}", highlight=False)
    else:
        _show_build(result)


def _said(error: GoldError) -> str:
    """What a failed build says: in a terminal, and so not in a log, with values of rows."""
    from lakehouse.runtime.terminal import err

    seen = isinstance(error, BuildError) and err.is_terminal
    return error.in_terminal if seen else str(error)  # type: ignore[attr-defined]


def _show_build(result: BuildResult) -> None:
    from lakehouse.runtime.terminal import err

    for model in result.models:
        what = (model.message or model.status).lower()  # such as "kept (16 rows)"
        err.print(f"gold.{model.name} {what} [dim]{model.seconds:.1f} s[/dim]")
    done = (
        "published"
        if result.published
        else "not published, because only selected models were built"
    )
    err.print(f"{len(result.models)} models built, {len(result.tests)} tests passed; {done}")


@commands.command()
def explain(
    model: Annotated[str | None, typer.Argument(help="A kept model; all if left out.")] = None,
) -> None:
    """Show which keys of a kept model a change affects, or why all its rows are computed.

    Uses a running SQL endpoint, or starts a private one.
    """
    from gold.explain import explain as paragraphs

    with _endpoint() as (lake, _):
        for paragraph in paragraphs(lake.settings, model):
            typer.echo(paragraph)


@commands.command()
def sources() -> None:
    """Write the dbt sources for silver's tables into the dbt project, from the topic file.

    After that, each build writes the file again if the topic file has changed.
    """
    from gold.dbt.project import DbtProject
    from gold.dbt.sources import write_sources

    written = write_sources(DbtProject.of(current.settings), current.topics)
    typer.echo(str(written) if written else "The sources are those of the topic file.")


@commands.command()
def evaluate(form: Format = "table") -> None:
    """Measure what gold predicts by data that is held out, as the application defines it."""
    from gold.build import require_silver
    from lakehouse.application import require_application
    from lakehouse.runtime.terminal import print_rows

    application = require_application(current.topics, "lakehouse gold evaluate")
    require_silver(current.lake)
    with _endpoint() as (lake, _):
        columns, rows = application.evaluate(lake)
    print_rows(columns, rows, form)
