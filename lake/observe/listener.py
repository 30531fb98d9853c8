"""Listens to Spark's streaming queries and updates the metrics of streams."""

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

from lake.observe import metrics
from lake.settings.settings import LakeSettings

WHOLE_BATCH = "triggerExecution"  # Spark's name for all phases together


class _Bridge(JStreamingQueryListener):
    """Fetches a progress report from Java as one JSON text.

    PySpark fetches each field separately. The hundred calls took too long for a small batch.
    """

    def onQueryProgress(self, jevent: Any) -> None:
        progress = json.loads(jevent.progress().json())
        self.pylistener.onQueryProgress(QueryProgressEvent.fromJson({"progress": progress}))


class _Listener(StreamingQueryListener):
    """Records the durations that Spark reports at the end of each batch."""

    def __init__(self, spark: SparkSession) -> None:
        self._names: dict[UUID, str] = {}
        jvm: Any = spark._jvm  # noqa: SLF001 - Python has no other way
        java_import(jvm, "org.apache.spark.sql.streaming.*")
        self._jlistenerobj = jvm.PythonStreamingQueryListenerWrapper(_Bridge(self))

    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        """Record that a query has started."""
        name = event.name or str(event.id)
        self._names[event.runId] = name
        metrics.started(name)

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        """Record that a batch has ended, with the durations of its phases."""
        progress = event.progress
        phases = {name: ms / 1000 for name, ms in progress.durationMs.items()}
        total = phases.pop(WHOLE_BATCH, sum(phases.values()))
        metrics.batch_done(progress.name or str(progress.id), total, phases)

    def onQueryIdle(self, event: QueryIdleEvent) -> None:
        """Record that a query found nothing to do."""
        if name := self._names.get(event.runId):
            metrics.progressed(name)

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        """Record that a query has ended, with or without an error."""
        if name := self._names.pop(event.runId, None):
            metrics.ended(name)


_listeners: WeakKeyDictionary[SparkSession, _Listener] = WeakKeyDictionary()


def listen(spark: SparkSession, settings: LakeSettings) -> None:
    """Listen to the queries of a session, if `metrics_port` is set. Repeated calls do nothing."""
    if settings.metrics_port is not None and spark not in _listeners:
        _listeners[spark] = _Listener(spark)
        spark.streams.addListener(_listeners[spark])
