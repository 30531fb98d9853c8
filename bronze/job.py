"""A layer as a job: wait for its streams, explain what failed, and end with the right exit code.

`lakehouse <layer>` and `python -m <layer>` (for spark-submit) are both made of this.
"""

import contextlib
import os
import signal
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from threading import Event
from types import FrameType
from typing import Any, Protocol

import structlog
import typer
from py4j.protocol import Py4JJavaError
from pyspark.java_gateway import ensure_callback_server_started
from pyspark.sql import SparkSession

from bronze.command import AvailableNow, exit_with
from bronze.errors import LakehouseError, SettingsError
from bronze.exporter import LayerCollector, serving
from bronze.failures import NO_SPARK
from bronze.log_store import add_log_store
from bronze.logs import configure_logs
from bronze.settings import LakeSettings, load_settings
from bronze.storage import require_bucket, spark_options
from bronze.streams import Stream
from bronze.topics import TopicFile, load_topics

DELTA = "io.delta:delta-spark_4.2_2.13:4.4.0"
SUBMITTED = "PYSPARK_GATEWAY_PORT"  # set by spark-submit, whose Java process starts ours

log = structlog.get_logger()


class Start(Protocol):
    """Starts the streams of a layer: `bronze.ingest.ingest` and its like."""

    def __call__(
        self, spark: SparkSession, settings: LakeSettings, topics: TopicFile, *, available_now: bool
    ) -> list[Stream]:
        """Start them; with `available_now` they end when they have caught up."""


def streaming_job(
    layer: str, start: Start, collector: Callable[[LakeSettings, TopicFile], LayerCollector]
) -> None:
    """Run a layer's streams in the session that spark-submit configured; parses the command line.

    Settings come from the environment (`LAKEHOUSE_…`) and `lakehouse.toml`; where they have a port
    for metrics, those of the collector are served.
    """

    def command(available_now: AvailableNow = False) -> None:
        settings = load_settings()
        configure_logs(settings.log_format)
        topics = load_topics(settings.topics)
        with contextlib.ExitStack() as stack:
            if not available_now:
                stack.enter_context(serving(settings, collector(settings, topics)))
            spark = _submitted_session(settings, f"lakehouse-{layer}")
            stack.callback(stop_spark, spark)
            if SUBMITTED in os.environ:
                _leave_signals_to_python(spark)
            await_streams(start(spark, settings, topics, available_now=available_now))

    command.__doc__ = f"Run the streams of {layer} in the Spark session that is configured."
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
            f"This Spark has no Delta. Submit the job with `--packages {DELTA}`, or run "
            "`lakehouse bronze` and `lakehouse silver`, which bring their own."
        )
        raise SettingsError(message)
    add_log_store(spark, settings)
    return spark


class _ToldToStop:
    """Java's handler of SIGTERM: tells this process, and does not end that one."""

    def handle(self, _: Any) -> None:
        """Called by Java."""
        os.kill(os.getpid(), signal.SIGTERM)

    class Java:
        """As py4j wants it named."""

        implements = ("sun.misc.SignalHandler",)


def _leave_signals_to_python(spark: SparkSession) -> None:
    """Let a batch finish where supervisors tell Java to stop, which would cancel it at once.

    A Ctrl-C reaches both processes, so Java is to ignore it.
    """
    gateway: Any = spark.sparkContext._gateway  # noqa: SLF001 - Python has no other way
    ensure_callback_server_started(gateway)
    java = gateway.jvm.sun.misc
    java.Signal.handle(java.Signal("TERM"), _ToldToStop())
    with contextlib.suppress(Py4JJavaError):  # it cannot, where it was started to ignore it
        java.Signal.handle(java.Signal("INT"), java.SignalHandler.SIG_IGN)


def stop_spark(spark: SparkSession) -> None:
    """Stop a session, whose Java process may have ended by itself."""
    with contextlib.suppress(*NO_SPARK):  # what has ended needs no stop
        spark.stop()


def await_streams(streams: Sequence[Stream]) -> None:
    """Wait until all streams have caught up or were given up, or until Ctrl-C or SIGTERM.

    When told to stop, each finishes the batch under way. All are stopped and released at the end.

    Raises:
        LakehouseError: some were given up, in the words of what failed.
        KeyboardInterrupt: told to stop before streams that end by themselves had caught up.
    """
    with stop_signal() as stop, ThreadPoolExecutor(len(streams)) as pool:
        endings = [pool.submit(each.keep, stop) for each in streams]
        errors = [error for each in endings if (error := each.exception()) is not None]
    if len(errors) == 1:
        raise errors[0]
    if errors:
        raise LakehouseError("\n".join(str(error) for error in errors)) from errors[0]
    if stop.is_set() and any(each.available_now for each in streams):
        raise KeyboardInterrupt


@contextlib.contextmanager
def stop_signal() -> Iterator[Event]:
    """An event that Ctrl-C and SIGTERM set, while the block runs.

    They do not raise: an exception in the middle of a call to Java leaves a broken connection.
    """
    stop = Event()

    def told(number: int, _: FrameType | None) -> None:
        log.info("stopping, when the batches under way are finished", signal=number)
        stop.set()

    before = {number: signal.signal(number, told) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
