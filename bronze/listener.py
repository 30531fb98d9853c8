"""Hears of Spark's streaming queries what the metrics of streams need."""

import json
from typing import Any
from uuid import UUID
from weakref import WeakKeyDictionary

from py4j.java_gateway import java_import
from pyspark.sql import SparkSession
from pyspark.sql.streaming.listener import (
    JStreamingQueryListener,
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)

from bronze import metrics
from bronze.settings import LakeSettings

WHOLE_BATCH = "triggerExecution"  # Spark's name for all phases together


class _Bridge(JStreamingQueryListener):
    """Asks Java for a progress as one text.

    PySpark asks for each of its fields: a hundred calls, which took more than a small batch may.
    """

    def onQueryProgress(self, jevent: Any) -> None:
        told = json.loads(jevent.progress().json())
        self.pylistener.onQueryProgress(QueryProgressEvent.fromJson({"progress": told}))


class _Listener(StreamingQueryListener):
    """Notes the durations that Spark tells at the end of each batch."""

    def __init__(self, spark: SparkSession) -> None:
        self._names: dict[UUID, str] = {}
        jvm: Any = spark._jvm  # noqa: SLF001 - Python has no other way
        java_import(jvm, "org.apache.spark.sql.streaming.*")
        self._jlistenerobj = jvm.PythonStreamingQueryListenerWrapper(_Bridge(self))

    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        """A query begins."""
        name = event.name or str(event.id)
        self._names[event.runId] = name
        metrics.started(name)

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        """A batch has ended."""
        progress = event.progress
        phases = {name: ms / 1000 for name, ms in progress.durationMs.items()}
        total = phases.pop(WHOLE_BATCH, sum(phases.values()))
        metrics.batch_done(progress.name or str(progress.id), total, phases)

    def onQueryIdle(self, event: QueryIdleEvent) -> None:
        """A query has looked, and found nothing to do."""
        if name := self._names.get(event.runId):
            metrics.progressed(name)

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        """A query has ended, well or not."""
        if name := self._names.pop(event.runId, None):
            metrics.ended(name)


_listeners: WeakKeyDictionary[SparkSession, _Listener] = WeakKeyDictionary()


def listen(spark: SparkSession, settings: LakeSettings) -> None:
    """Listen to the queries that are started in a session, if metrics are wanted; idempotent."""
    if settings.metrics_port is not None and spark not in _listeners:
        _listeners[spark] = _Listener(spark)
        spark.streams.addListener(_listeners[spark])
