"""Explains errors that have passed through Spark and Java, and decides whether to retry."""

import pkgutil
import re

from py4j.protocol import Py4JNetworkError
from pyspark.errors import StreamingQueryException

from lake.remedies import said, with_remedy
from pulsar_spark.errors import LakehouseError

OWN = re.compile(r"((?:pulsar_spark|lake|bronze|silver|gold)\.[\w.]*Error): (.+)")
NO_SPARK = (Py4JNetworkError, ConnectionRefusedError)


class StartAgainError(LakehouseError):
    """A query must start again to go on, such as with other columns. This is no failure."""


def explain(error: Exception) -> str:
    """The sentence that matters in an error that has passed through Spark and Java."""
    if isinstance(error, NO_SPARK):
        return "Spark's Java process has ended. Read its last lines above, and start the job again."
    if isinstance(error, LakehouseError):
        return said(error)
    text = str(error)
    own = OWN.findall(text)
    if own:
        return with_remedy(*own[-1])
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
