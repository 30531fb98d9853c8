"""What an error says that went through Spark and Java, and whether to try again may mend it."""

import pkgutil
import re

from py4j.protocol import Py4JNetworkError
from pyspark.errors import StreamingQueryException

from bronze.errors import LakehouseError

OWN = re.compile(r"((?:bronze|silver|gold)\.[\w.]*Error): (.+)")
NO_SPARK = (Py4JNetworkError, ConnectionRefusedError)


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
