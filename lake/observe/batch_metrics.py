"""Updates the metrics of streams from the progress that Spark reports for each batch."""

import datetime as dt
import time
from contextlib import suppress

from py4j.protocol import Py4JError
from pyspark import SparkContext
from pyspark.sql.streaming.listener import StreamingQueryProgress
from pyspark.sql.streaming.query import StreamingQuery

from lake.observe import metrics
from lake.observe.health import HEALTH
from lake.observe.recent_batches import RECENT, Batch
from lake.settings.settings import LakeSettings

WHOLE_BATCH = "triggerExecution"  # Spark's name for all phases together
PAUSE_SECONDS = 1.0  # with many topics, asking each query more often would take a core


class BatchMetrics:
    """The metrics of one stream over its runs. Does nothing if nobody serves them.

    `Stream` calls `started`, `look` and `ended` in this order for each run.
    """

    def __init__(self, settings: LakeSettings, name: str) -> None:
        self._serves = settings.metrics_port is not None
        self._is_on = self._serves or RECENT.is_on
        self._name = name
        self._query: StreamingQuery | None = None
        self._reported: int | None = None  # the last batch of this run that was counted
        self._due = 0.0
        self._tasks: set[tuple[int, int]] = set()

    def started(self, query: StreamingQuery) -> None:
        """Note that a query has started."""
        if self._is_on:
            self._query, self._reported = query, None
            metrics.started(self._name)
            HEALTH.report(self._name, "running")

    def look(self) -> None:
        """Count the batches since the last look, if it is time to. Called repeatedly."""
        if self._query is not None and time.monotonic() >= self._due:
            self._due = time.monotonic() + PAUSE_SECONDS
            self._count(self._query)
            if not self._serves:  # nobody asks whether it makes progress
                return
            if not self._query.status["isTriggerActive"]:  # it waits for new rows
                metrics.progressed(self._name)
                HEALTH.progressed(self._name)
            elif (done := _finished_tasks()) != self._tasks:  # of this batch, or of another query
                self._tasks = done
                HEALTH.progressed(self._name)

    def ended(self) -> None:
        """Count the last batches, and note that the query has ended."""
        if self._query is not None:
            with suppress(Py4JError, OSError):  # Java may have ended
                self._count(self._query)
            self._query = None
            metrics.ended(self._name)
            HEALTH.report(self._name, "ended")

    def _count(self, query: StreamingQuery) -> None:
        last = query.lastProgress
        if last is None or last.batchId == self._reported:
            return
        is_next = self._reported is not None and last.batchId == self._reported + 1
        for progress in [last] if is_next else query.recentProgress:
            if self._reported is None or progress.batchId > self._reported:
                self._report(progress)
                HEALTH.progressed(self._name)
                self._reported = progress.batchId

    def _report(self, progress: StreamingQueryProgress) -> None:
        phases = {name: ms / 1000 for name, ms in progress.durationMs.items()}
        total = phases.pop(WHOLE_BATCH, sum(phases.values()))
        metrics.batch_done(self._name, total, phases)
        if RECENT.is_on:
            begun = _seconds(getattr(progress, "timestamp", "")) or time.time() - total
            RECENT.add(self._name, Batch(progress.batchId, begun, total, phases))


def _seconds(instant: str) -> float | None:
    """An instant as Spark writes it, in seconds since 1970; None if it is absent."""
    return (
        dt.datetime.fromisoformat(instant.replace("Z", "+00:00")).timestamp() if instant else None
    )


def _finished_tasks() -> set[tuple[int, int]]:
    """Each stage that runs in this process, and how many of its tasks are done."""
    context = SparkContext._active_spark_context  # noqa: SLF001 - `getOrCreate` would start another
    if context is None:
        return set()
    tracker = context.statusTracker()
    found = ((stage, tracker.getStageInfo(stage)) for stage in tracker.getActiveStageIds())
    return {(stage, info.numCompletedTasks) for stage, info in found if info is not None}
