"""A layer as a job: wait for its streams, explain what failed, and end with the right exit code.

`lakehouse <layer>` and `python -m <layer>` (for spark-submit) are both made of this.
"""

import contextlib
import logging
import re
import signal
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from threading import Event
from types import FrameType
from typing import Annotated, Protocol

import structlog
import typer
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

from bronze.checkpoint import Running
from bronze.errors import LakehouseError, SettingsError
from bronze.settings import LakeSettings, load_settings
from bronze.topics import TopicFile, load_topics

POLL_SECONDS = 0.2
DELTA = "io.delta:delta-spark_4.2_2.13:4.4.0"

# Python loggers of Spark that report, with a trace, what is then raised or was a mere Ctrl-C.
LOUD = ("py4j", "SQLQueryContextLogger", "DataFrameQueryContextLogger")

AvailableNow = Annotated[
    bool, typer.Option("--available-now", help="Catch up with what is there, then exit.")
]


class Start(Protocol):
    """Starts the streams of a layer: `bronze.ingest.ingest` and its like."""

    def __call__(
        self, spark: SparkSession, settings: LakeSettings, topics: TopicFile, *, available_now: bool
    ) -> list[Running]:
        """Start them; with `available_now` they end when they have caught up."""


def streaming_job(layer: str, start: Start) -> None:
    """Run a layer's streams in the session that spark-submit configured; parses the command line.

    Settings come from the environment (`LAKEHOUSE_…`) and `lakehouse.toml`.
    """

    def command(available_now: AvailableNow = False) -> None:
        configure_logs()
        settings = load_settings()
        topics = load_topics(settings.topics)
        spark = _submitted_session(f"lakehouse-{layer}")
        try:
            await_streams(start(spark, settings, topics, available_now=available_now))
        finally:
            spark.stop()

    command.__doc__ = f"Run the streams of {layer} in the Spark session that is configured."
    app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
    app.command()(command)
    exit_with(app)


def _submitted_session(name: str) -> SparkSession:
    spark = (
        SparkSession.builder.appName(name)
        .config("spark.sql.extensions", "io.delta.sql.DeltaSparkSessionExtension")
        .config(
            "spark.sql.catalog.spark_catalog", "org.apache.spark.sql.delta.catalog.DeltaCatalog"
        )
        .config("spark.sql.session.timeZone", "UTC")
        .getOrCreate()
    )
    loader = spark._jvm.java.lang.Thread.currentThread().getContextClassLoader()  # type: ignore[union-attr]  # noqa: SLF001
    if loader.getResource("io/delta/sql/DeltaSparkSessionExtension.class") is None:
        spark.stop()
        message = (
            f"This Spark has no Delta. Submit the job with `--packages {DELTA}`, or run "
            "`lakehouse bronze` and `lakehouse silver`, which bring their own."
        )
        raise SettingsError(message)
    return spark


def configure_logs() -> None:
    """Log to stderr, as stdout is for results: coloured for people, logfmt for machines."""
    for name in LOUD:
        logging.getLogger(name).setLevel(logging.CRITICAL + 1)
    terminal = sys.stderr.isatty()
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.dev.ConsoleRenderer()
            if terminal
            else structlog.processors.LogfmtRenderer(key_order=["timestamp", "level", "event"]),
        ],
        logger_factory=lambda *_: structlog.PrintLogger(sys.stderr),  # whatever that is by then
    )


def await_streams(running: Sequence[Running]) -> None:
    """Wait until all queries have ended, or one has failed; stop and release them all.

    Raises:
        LakehouseError: a query failed, in the words of what failed.
        KeyboardInterrupt: Ctrl-C or SIGTERM; the queries are stopped.
    """
    try:
        with stop_signal() as stop:
            while any(each.query.isActive for each in running) and not stop.wait(POLL_SECONDS):
                _raise_failure(running)
        _raise_failure(running)
        if stop.is_set():
            raise KeyboardInterrupt
    finally:
        for each in running:
            each.stop()


def _raise_failure(running: Sequence[Running]) -> None:
    for each in running:
        error = None if each.query.isActive else each.query.exception()
        if error is not None:
            message = f"The query {each.query.name} failed: {explain(error)}"
            raise LakehouseError(message) from error


def explain(error: Exception) -> str:
    """The sentence that matters in an error that went through Spark and Java."""
    text = str(error)
    own = re.findall(r"(?:bronze|silver|gold)\.[\w.]*Error: (.+)", text)
    if own:
        return str(own[-1])
    if isinstance(error, StreamingQueryException):
        text = text.split("=== Streaming Query ===")[0]
    python = re.findall(r"^(\w+Error: .+)", text, re.MULTILINE)
    if python:
        return str(python[-1])
    known = re.findall(r"\[([A-Z_.]{6,}\] .+)", text)
    return f"[{known[-1]}" if known else (text.strip().splitlines() or [type(error).__name__])[0]


@contextlib.contextmanager
def stop_signal() -> Iterator[Event]:
    """An event that Ctrl-C and SIGTERM set, while the block runs.

    They do not raise: an exception in the middle of a call to Java leaves a broken connection.
    """
    stop = Event()

    def told(_: int, __: FrameType | None) -> None:
        stop.set()

    before = {number: signal.signal(number, told) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def exit_with(app: Callable[[], object], *, traces: Callable[[], bool] = lambda: False) -> None:
    """Run a command line; an error is one message on stderr and an exit code.

    Exit codes: 2 for what the user can mend, 130 after Ctrl-C, 1 for what nobody foresaw. Where
    `traces` says so, the traceback comes first.
    """
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        app()
    except KeyboardInterrupt:
        sys.exit(130)
    except Exception as error:  # noqa: BLE001 - the last resort must catch all
        if traces():
            traceback.print_exc()
        message, exit_code = _verdict(error)
        typer.secho("Error: ", fg="red", err=True, nl=False)
        typer.echo(message, err=True)
        sys.exit(exit_code)


def _verdict(error: Exception) -> tuple[str, int]:
    if isinstance(error, LakehouseError):
        return str(error), error.exit_code
    if isinstance(error, OSError) and error.filename is not None:
        return f"{error.filename}: {error.strerror}. See that it exists and may be written.", 2
    return f"{type(error).__name__}: {explain(error)}", 1
