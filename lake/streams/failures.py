"""Explains errors that have passed through Spark and Java, and decides whether to retry."""

import functools
import pkgutil
import re
from collections.abc import Callable

from py4j.protocol import Py4JJavaError, Py4JNetworkError
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame

from pulsar_spark.errors import LakehouseError

OWN = re.compile(r"((?:pulsar_spark|lake|bronze|silver|gold)\.[\w.]*Error): (.+)")
# Errors that a batch gets from Java when its query is stopped during a wait or a job.
STOPPED = re.compile(
    r"java\.lang\.InterruptedException|java\.io\.InterruptedIOException"
    r"|java\.nio\.channels\.ClosedByInterruptException|SPARK_JOB_CANCELLED"
)
# The form that Spark recognises in `StreamExecution.isInterruptionException`.
INTERRUPTED = (
    "py4j.protocol.Py4JJavaError: An error occurred while calling: "
    "{why} (java.lang.InterruptedException)"
)
NO_SPARK = (Py4JNetworkError, ConnectionRefusedError)

RunBatch = Callable[[DataFrame, int], None]


class BatchInterruptedError(Exception):
    """A batch was cancelled because its query was stopped."""


def interruptible(run_batch: RunBatch) -> RunBatch:
    """Wrap a `foreachBatch` function so that Spark recognises when a stop has cancelled the batch.

    Spark searches the Python traceback with a regular expression. It overflows the stack if more
    than about 1,000 characters follow, and Java's stack trace is longer than that. The wrapper
    raises a short error instead.
    """

    @functools.wraps(run_batch)
    def run(rows: DataFrame, batch_id: int) -> None:
        try:
            run_batch(rows, batch_id)
        except Py4JJavaError as error:
            found = STOPPED.search(str(error))
            if found is None:
                raise
            message = INTERRUPTED.format(why=found[0])
            raise BatchInterruptedError(message) from None

    return run


def explain(error: Exception) -> str:
    """The sentence that matters in an error that has passed through Spark and Java."""
    if isinstance(error, NO_SPARK):
        return "Spark's Java process has ended. Read its last lines above, and start the job again."
    text = str(error)
    own = OWN.findall(text)
    if own:
        return str(own[-1][1])
    if isinstance(error, StreamingQueryException):
        text = text.split("=== Streaming Query ===")[0]
    python = re.findall(r"^(\w+Error: .+)", text, re.MULTILINE)
    if python:
        return str(python[-1])
    known = re.findall(r"\[([A-Z_.]{6,}\] .+)", text)
    return f"[{known[-1]}" if known else (text.strip().splitlines() or [type(error).__name__])[0]


def may_pass(error: Exception) -> bool:
    """Whether a retry may succeed, for example after the broker was away or a worker was lost.

    Most errors raised by the lakehouse itself last until somebody corrects the cause. Without
    Spark's Java process nothing can be started again.
    """
    if isinstance(error, LakehouseError):
        return error.may_pass
    if isinstance(error, NO_SPARK):
        return False
    own = OWN.findall(str(error))
    if not own:
        return True
    try:
        kind = pkgutil.resolve_name(own[-1][0])
    except (ImportError, AttributeError, ValueError):
        return True
    return bool(getattr(kind, "may_pass", True))
