"""Runs the batches of a streaming query, and lets the query end between two of them.

Spark can stop a query only at once, which cancels a running batch. `Batches` therefore holds the
next batch back until the query is stopped. Spark has planned that batch by then, so the next start
runs it.
"""

import re
from collections.abc import Callable
from threading import Event

from py4j.protocol import Py4JJavaError
from pyspark.sql import DataFrame
from pyspark.sql.streaming.query import StreamingQuery

from pulsar_spark.errors import LakehouseError

POLL_SECONDS = 0.01
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

RunBatch = Callable[[DataFrame, int], None]


class BatchInterruptedError(Exception):
    """A batch was cancelled, or did not begin, because its query was stopped."""

    def __init__(self, why: str = "java.lang.InterruptedException") -> None:
        super().__init__(INTERRUPTED.format(why=why))


class Batches:
    """The `foreachBatch` function of one started query. Spark calls it, one batch at a time.

    run_batch: processes a batch, given its rows and its id.
    """

    def __init__(self, run_batch: RunBatch) -> None:
        self._run_batch = run_batch
        self._ending: StreamingQuery | None = None
        self._holds = Event()
        self.error: LakehouseError | None = None  # from the last batch; Spark passes on its text

    def __call__(self, rows: DataFrame, batch_id: int) -> None:
        """Run a batch, or hold it back if the query is ending.

        Spark recognises a stopped batch by a regular expression over the Python traceback. That
        overflows the stack if more than about 1,000 characters follow, and Java's stack trace is
        longer. A short error is therefore raised instead.

        Raises:
            BatchInterruptedError: the query was stopped.
        """
        if self._ending is not None:
            self._hold_until_stopped(self._ending)
        try:
            self._run_batch(rows, batch_id)
        except LakehouseError as error:
            self.error = error
            raise
        except Py4JJavaError as error:
            found = STOPPED.search(str(error))
            if found is None:
                raise
            raise BatchInterruptedError(found[0]) from None

    def end(self, query: StreamingQuery) -> None:
        """Begin no other batch of the query. Called by another thread, which then stops it."""
        self._ending = query

    @property
    def is_running(self) -> bool:
        """Whether the query is busy with a batch. A batch that is held back does not count."""
        query = self._ending
        return query is None or (query.status["isTriggerActive"] and not self._holds.is_set())

    def _hold_until_stopped(self, query: StreamingQuery) -> None:
        self._holds.set()
        while query.isActive:  # until then, Spark would take the error for a failure
            Event().wait(POLL_SECONDS)
        raise BatchInterruptedError
