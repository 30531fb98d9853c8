"""Runs a layer as a job: waits for its streams, explains failures, and sets the exit code.

Both `lakehouse <layer>` and `python -m <layer>` (for spark-submit) use this module.
"""

import contextlib
import os
import signal
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from queue import SimpleQueue
from threading import Event, Thread
from types import FrameType
from typing import Any, Protocol

import structlog
import typer
from py4j.protocol import Py4JJavaError
from pyspark.java_gateway import ensure_callback_server_started
from pyspark.sql import SparkSession

from lake.observe.exporter import LayerCollector, serving
from lake.observe.logs import configure_logs
from lake.remedies import said
from lake.settings.settings import LakeSettings, load_settings
from lake.streams.command import AvailableNow, exit_with
from lake.streams.failures import NO_SPARK
from lake.streams.supervisor import Stream
from lake.tables.format import require_known_format
from lake.tables.lake import Lake
from lake.tables.log_store import add_log_store
from lake.tables.storage import require_bucket, spark_options
from lake.topics.topic_file import load_topics
from pulsar_spark.errors import LakehouseError, SettingsError

DELTA = "io.delta:delta-spark_4.2_2.13:4.4.0"
SUBMITTED = "PYSPARK_GATEWAY_PORT"  # set by spark-submit, whose Java process starts this one

log = structlog.get_logger()


class Start(Protocol):
    """A function that starts the streams of a layer, such as `bronze.ingest.ingest`."""

    def __call__(self, spark: SparkSession, lake: Lake, *, available_now: bool) -> list[Stream]:
        """Start the streams. With `available_now`, they end when they have caught up."""


def streaming_job(layer: str, start: Start, collector: Callable[[Lake], LayerCollector]) -> None:
    """Parse the command line and run a layer's streams in the session configured by spark-submit.

    Called by `python -m bronze` and `python -m silver`. Settings come from the environment
    (`LAKEHOUSE_…`) and `lakehouse.toml`. If they contain a port for metrics, the collector's
    metrics are served there.
    """

    def command(available_now: AvailableNow = False) -> None:
        settings = load_settings()
        configure_logs(settings.log_format)
        lake = Lake(settings, load_topics(settings.topics))
        require_known_format(settings)
        with contextlib.ExitStack() as stack:
            if not available_now:
                stack.enter_context(serving(settings, collector(lake)))
            spark = _submitted_session(settings, f"lakehouse-{layer}")
            stack.callback(stop_spark, spark)
            if SUBMITTED in os.environ:
                _leave_signals_to_python(spark)
            await_streams(start(spark, lake, available_now=available_now))

    command.__doc__ = f"Run the streams of {layer} in the configured Spark session."
    app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
    app.command()(command)
    exit_with(app)


def _submitted_session(settings: LakeSettings, name: str) -> SparkSession:
    require_bucket(settings)
    spark = (
        SparkSession.builder.appName(name)
        .config("spark.sql.extensions", "io.delta.sql.DeltaSparkSessionExtension")
        .config(
            "spark.sql.catalog.spark_catalog", "org.apache.spark.sql.delta.catalog.DeltaCatalog"
        )
        .config("spark.sql.session.timeZone", "UTC")
        .config(map={**spark_options(settings)})
        .getOrCreate()
    )
    loader = spark._jvm.java.lang.Thread.currentThread().getContextClassLoader()  # type: ignore[union-attr]  # noqa: SLF001
    if loader.getResource("io/delta/sql/DeltaSparkSessionExtension.class") is None:
        spark.stop()
        message = (
            f"This Spark does not include Delta. Submit the job with `--packages {DELTA}`, or run "
            "`lakehouse bronze` and `lakehouse silver`, which include it."
        )
        raise SettingsError(message)
    add_log_store(spark, settings)
    return spark


class _StopRequested:
    """Java's handler of SIGTERM: passes the signal to this process and keeps Java running."""

    def handle(self, _: Any) -> None:
        """Pass the signal on. Called by Java."""
        os.kill(os.getpid(), signal.SIGTERM)

    class Java:
        """Declares the Java interface; py4j requires this name."""

        implements = ("sun.misc.SignalHandler",)


def _leave_signals_to_python(spark: SparkSession) -> None:
    """Let a batch finish when a supervisor sends SIGTERM to Java, which would cancel it at once.

    Ctrl-C reaches both processes, so Java ignores it.
    """
    gateway: Any = spark.sparkContext._gateway  # noqa: SLF001 - Python has no other way
    ensure_callback_server_started(gateway)
    java = gateway.jvm.sun.misc
    java.Signal.handle(java.Signal("TERM"), _StopRequested())
    with contextlib.suppress(Py4JJavaError):  # fails if Java was started to ignore it
        java.Signal.handle(java.Signal("INT"), java.SignalHandler.SIG_IGN)


def stop_spark(spark: SparkSession) -> None:
    """Stop a session. Its Java process may have ended by itself."""
    with contextlib.suppress(*NO_SPARK):  # Java has ended already
        spark.stop()


def await_streams(streams: Sequence[Stream]) -> None:
    """Wait until all streams have caught up or been given up, or until Ctrl-C or SIGTERM.

    After a signal, each stream finishes its current batch. At the end, all streams are stopped and
    their checkpoints released.

    Raises:
        LakehouseError: one or more streams were given up; the message holds their reasons.
        KeyboardInterrupt: a signal came before the streams with `available_now` had caught up.
    """
    with stop_signal() as stop, ThreadPoolExecutor(len(streams)) as pool:
        endings = [pool.submit(each.keep, stop) for each in streams]
        errors = [error for each in endings if (error := each.exception()) is not None]
    if len(errors) == 1:
        raise errors[0]
    if errors:
        raise LakehouseError("\n".join(map(said, errors))) from errors[0]
    if stop.is_set() and any(each.available_now for each in streams):
        raise KeyboardInterrupt


@contextlib.contextmanager
def stop_signal() -> Iterator[Event]:
    """An event that Ctrl-C and SIGTERM set while the block runs.

    The signals do not raise, because an exception during a call to Java breaks the connection.
    A thread sets the event: the handler interrupts the main thread, which may hold the event's
    lock, so setting it there could wait forever.
    """
    stop, signals = Event(), SimpleQueue[int | None]()  # its `put` may interrupt itself

    def pass_on() -> None:
        while (number := signals.get()) is not None:
            log.info("stopping after the current batches", signal=number)
            stop.set()

    def handle(number: int, _: FrameType | None) -> None:
        signals.put(number)

    thread = Thread(target=pass_on, name="signals", daemon=True)
    thread.start()
    before = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        signals.put(None)
        thread.join()
