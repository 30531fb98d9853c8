"""What an error says that went through Spark and Java, and whether to try again may mend it."""

import functools
import pkgutil
import re
from collections.abc import Callable

from py4j.protocol import Py4JJavaError, Py4JNetworkError
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame

from bronze.errors import LakehouseError

OWN = re.compile(r"((?:bronze|silver|gold)\.[\w.]*Error): (.+)")
# What a batch gets from Java when its query is stopped: it waited, or a job of it ran.
STOPPED = re.compile(
    r"java\.lang\.InterruptedException|java\.io\.InterruptedIOException"
    r"|java\.nio\.channels\.ClosedByInterruptException|SPARK_JOB_CANCELLED"
)
# As Spark knows it: `StreamExecution.isInterruptionException`.
INTERRUPTED = (
    "py4j.protocol.Py4JJavaError: An error occurred while calling: "
    "{why} (java.lang.InterruptedException)"
)
NO_SPARK = (Py4JNetworkError, ConnectionRefusedError)

RunBatch = Callable[[DataFrame, int], None]


class BatchInterruptedError(Exception):
    """A batch was cancelled, as its query was stopped."""


def interruptible(run_batch: RunBatch) -> RunBatch:
    """A batch of which Spark understands that it was cancelled because the query was stopped.

    Spark looks for that in the traceback that Python tells it, by a regular expression that
    overflows the stack where more than some 1,000 characters follow, as Java's trace does.
    """

    @functools.wraps(run_batch)
    def run(rows: DataFrame, batch_id: int) -> None:
        try:
            run_batch(rows, batch_id)
        except Py4JJavaError as error:
            found = STOPPED.search(str(error))
            if found is None:
                raise
            told = INTERRUPTED.format(why=found[0])
            raise BatchInterruptedError(told) from None

    return run


def explain(error: Exception) -> str:
    """The sentence that matters in an error that went through Spark and Java."""
    if isinstance(error, NO_SPARK):
        return "Spark's Java process has ended. See its last words above, and start the job again."
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
    """Whether what failed may work a while later: the broker was away, a worker or disk was lost.

    What the lakehouse itself refuses stays refused until somebody mends it, and without Spark's
    Java process nothing starts again.
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
