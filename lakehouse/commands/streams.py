"""The commands that run streams: `demo`, `up`, `bronze`, `silver`, `imports`, `sinks`, `pause`."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from lake.streams.command import AvailableNow
from lakehouse.runtime.context import current
from pulsar_spark.errors import SettingsError

Streams = Annotated[
    list[str],
    typer.Argument(
        metavar="STREAM...",
        help="bronze.<topic>, silver, publish.<sink>, export.<sink> or import.<topic>.",
    ),
]

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


Actions = Annotated[
    bool | None,
    typer.Option(
        "--console-actions",
        help="Let the console pause streams, and replay or discard quarantined records.",
        show_default=False,
    ),
]


def demo(
    data: Annotated[Path | None, typer.Option(help="Folder with a CSV file per topic.")] = None,
    scale: Annotated[float, typer.Option(min=0.0001, help="Size of the generated data.")] = 1.0,
    seed: Annotated[int, typer.Option(help="Seed of the generated data.")] = 1,
    keep_running: Annotated[
        bool, typer.Option("--keep-running", help="Keep streaming until Ctrl-C.")
    ] = False,
) -> None:
    """Run everything once on an empty lake and print the results."""
    from lakehouse.demo import demo
    from lakehouse.warm_up import warm_up_later

    current.choose_ports(broker=True)
    with _metrics() if keep_running else nullcontext(), _console(shown=keep_running):
        demo(current.lake, data=data, scale=scale, seed=seed, keep_running=keep_running)
    warm_up_later(current.settings)


def up(
    console_actions: Actions = None,
    rebuild: Annotated[
        bool,
        typer.Option(
            "--rebuild", help="First rebuild the tables that `plan` lists after a change."
        ),
    ] = False,
) -> None:
    """Run broker, imports, streams, sinks, SQL endpoint and console until Ctrl-C.

    If a broker answers at the configured address, it is used. Otherwise one is started here.
    With --rebuild, tables of silver that the topic file declares otherwise by now, such as with a
    new field, are rebuilt from bronze with what is computed from them, and others stay.
    """
    from lakehouse.up import up
    from lakehouse.warm_up import warm_up_later

    current.allow_actions(console_actions)
    current.choose_ports(broker=True)
    try:
        with _metrics(), _console():
            up(current.lake, rebuild=rebuild)
    finally:
        warm_up_later(current.settings)


def warm_up() -> None:
    """Make Java's ahead-of-time caches, with which later starts are faster. Takes minutes.

    `demo` and `up` do this in the background when they end for the first time.
    """
    from lakehouse.runtime.terminal import out, step
    from lakehouse.warm_up import warm_up

    with step("Training"):
        files = warm_up(current.settings)
    for file in files:
        out.print(f"{file} {file.stat().st_size >> 20} MB", soft_wrap=True)


def _metrics() -> AbstractContextManager[None]:
    """Serve the metrics of all layers at the configured port, if there is one."""
    from bronze.metrics import bronze_collector
    from gold.metrics import gold_collector
    from lake.observe.exporter import serving
    from lakehouse.sinks.metrics import sink_collector
    from silver.metrics import silver_collector

    layers = (bronze_collector, silver_collector, gold_collector, sink_collector)
    collectors = (collector(current.lake) for collector in layers)
    return serving(current.settings, *collectors, needs=("streams", "sql"))


def _console(*, shown: bool = True) -> AbstractContextManager[object]:
    """Serve the console, unless the settings turn it off."""
    if not (shown and current.settings.console):
        return nullcontext()
    from lakehouse.console.server import console

    return console(current.lake)


def bronze(available_now: AvailableNow = False) -> None:
    """Write the messages of the topics to the bronze tables."""
    from bronze.ingest import ingest
    from bronze.metrics import bronze_collector
    from lake.observe.exporter import serving
    from lake.streams.job import await_streams
    from lakehouse.runtime.broker import require_broker
    from lakehouse.runtime.run import spark_session

    require_broker(current.settings)
    mine = bronze_collector(current.lake)
    with (
        nullcontext() if available_now else serving(current.settings, mine),
        spark_session(current.settings, "lakehouse-bronze") as spark,
    ):
        await_streams(ingest(spark, current.lake, available_now=available_now))


def silver(available_now: AvailableNow = False) -> None:
    """Apply the changelogs of the bronze tables and enrich their events."""
    from lake.observe.exporter import serving
    from lake.streams.job import await_streams
    from lakehouse.runtime.run import spark_session
    from silver.metrics import silver_collector
    from silver.refine import refine, require_bronze

    require_bronze(current.lake)
    mine = silver_collector(current.lake)
    with (
        nullcontext() if available_now else serving(current.settings, mine),
        spark_session(current.settings, "lakehouse-silver") as spark,
    ):
        await_streams(refine(spark, current.lake, available_now=available_now))


def imports(
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="[NAME]...", help="Imports to run.", show_default="all"),
    ] = None,
    available_now: AvailableNow = False,
) -> None:
    """Run the imports of the topic file, which publish changed rows of PostgreSQL to topics.

    `up` runs them as well. They need no Java. With --available-now, each table is compared once.
    """
    from lake.observe.exporter import serving
    from lake.streams.job import await_streams
    from lakehouse.imports.importer import chosen, run_imports
    from lakehouse.runtime.broker import require_broker
    from lakehouse.sinks.postgres.database import check_addresses

    wanted = chosen(current.lake, names or ())
    check_addresses(wanted)
    require_broker(current.settings)
    with nullcontext() if available_now else serving(current.settings):
        await_streams(run_imports(current.lake, wanted, available_now=available_now))


def sinks(
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="[NAME]...", help="Sinks to run.", show_default="all"),
    ] = None,
    available_now: AvailableNow = False,
) -> None:
    """Run the sinks of the topic file, which send the changes of tables to topics and databases.

    `up` runs them as well. Sinks to databases alone need no Java.
    """
    from lake.observe.exporter import serving
    from lake.streams.job import await_streams
    from lakehouse.runtime.broker import require_broker
    from lakehouse.runtime.run import spark_session
    from lakehouse.sinks.metrics import sink_collector
    from lakehouse.sinks.running import check_sinks, chosen, run_sinks

    wanted = chosen(current.topics, names or ())
    check_sinks(current.lake, wanted)
    session: AbstractContextManager[SparkSession | None] = nullcontext()
    if wanted[0]:
        require_broker(current.settings)
        session = spark_session(current.settings, "lakehouse-sinks")
    mine = sink_collector(current.lake)
    with (
        nullcontext() if available_now else serving(current.settings, mine),
        session as spark,
    ):
        await_streams(run_sinks(spark, current.lake, wanted, available_now=available_now))


def pause(streams: Streams) -> None:
    """Pause streams after their current batch, until `lakehouse resume`.

    The others continue. The streams stay paused if the process is started again.
    """
    from lake.streams.pause import pause

    for name in _known(streams):
        pause(current.lake.settings, name)
        typer.echo(f"{name} is paused. `lakehouse resume {name}` lets it continue.")


def resume(streams: Streams) -> None:
    """Let paused streams continue where they stopped."""
    from lake.streams.pause import resume

    for name in _known(streams):
        was_paused = resume(current.lake.settings, name)
        typer.echo(f"{name} {'continues' if was_paused else 'was not paused'}.")


def _known(names: list[str]) -> list[str]:
    from lake.streams.state import stream_names

    known = stream_names(current.topics)
    for name in names:
        if name not in known:
            what = f"There is no stream '{name}'."
            raise SettingsError(what, f"The streams are {', '.join(known)}.")
    return names
