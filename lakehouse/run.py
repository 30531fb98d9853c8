"""Running the layers in this process: a session, its tables for SQL, streams until they end."""

import contextlib
import re
import signal
from collections.abc import Iterator, Sequence
from types import FrameType

from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

from bronze.checkpoint import Running
from bronze.errors import BrokerError, LakehouseError
from bronze.settings import LakeSettings
from lakehouse.broker import Broker, broker_answers, is_local, start_broker
from lakehouse.console import jar_progress, step
from lakehouse.session import build_session


@contextlib.contextmanager
def spark_session(settings: LakeSettings, name: str) -> Iterator[SparkSession]:
    """A Spark session that is stopped at the end."""
    with jar_progress("Fetching jars for Spark") as progress, step("Starting Spark"):
        spark = build_session(settings, name, progress)
    try:
        yield spark
    finally:
        spark.stop()


@contextlib.contextmanager
def embedded_broker(settings: LakeSettings) -> Iterator[Broker]:
    """The embedded broker, stopped at the end."""
    with jar_progress("Fetching jars for Pulsar") as progress, step("Starting Pulsar"):
        broker = start_broker(settings, progress)
    try:
        yield broker
    finally:
        with step("Stopping Pulsar"):
            broker.stop()


@contextlib.contextmanager
def broker_as_set(settings: LakeSettings) -> Iterator[bool]:
    """The broker of the settings if it answers, else the embedded one in its place.

    Yields:
        Whether it is the embedded one.

    Raises:
        BrokerError: the settings name another machine, and no broker answers there.
    """
    if broker_answers(settings):
        yield False
    elif is_local(settings):
        with embedded_broker(settings):
            yield True
    else:
        require_broker(settings)


def require_broker(settings: LakeSettings) -> None:
    """See that a broker answers.

    Raises:
        BrokerError: none does.
    """
    if not broker_answers(settings):
        message = (
            f"No Pulsar broker answers at {settings.pulsar_admin_url}. Start one with `lakehouse "
            "up`, or name yours with LAKEHOUSE_PULSAR_URL and LAKEHOUSE_PULSAR_ADMIN_URL."
        )
        raise BrokerError(message)


def await_streams(spark: SparkSession, running: Sequence[Running]) -> None:
    """Wait until all queries have ended, or one has failed; stop and release them all.

    Raises:
        LakehouseError: a query failed, in the words of what failed.
        KeyboardInterrupt: Ctrl-C or SIGTERM; the queries are stopped.
    """
    try:
        with _terminating():
            while any(each.query.isActive for each in running):
                spark.streams.awaitAnyTermination(1)
                spark.streams.resetTerminated()
                _raise_failure(running)
        _raise_failure(running)
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
    known = re.findall(r"\[([A-Z_.]{6,}\] .+)", text)
    return f"[{known[-1]}" if known else text.strip().splitlines()[0]


@contextlib.contextmanager
def _terminating() -> Iterator[None]:
    """SIGTERM ends the block as Ctrl-C does."""

    def interrupt(_: int, __: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
