"""Declares every metric of the lakehouse, and counts those that are counted as events happen.

The module is in the lowest layer because all layers count, and none may import a later one.
Metrics that can be read from tables and the broker are read on request, by `bronze/metrics.py`,
`silver/metrics.py` and `gold/metrics.py`. Their totals survive restarts. The other metrics begin at
0 with each process.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

from prometheus_client import Counter, Gauge, Histogram, disable_created_metrics
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.core import Metric as Family

Labels: TypeAlias = tuple[str, ...]
Kind = Literal["counter", "gauge", "histogram"]


@dataclass(frozen=True)
class Metric:
    """A metric: its name, meaning and labels. With `buckets` (seconds) it is a histogram."""

    name: str
    meaning: str
    labels: tuple[str, ...] = ()
    buckets: tuple[float, ...] = ()

    @property
    def kind(self) -> Kind:
        """The kind, derived from the name: in Prometheus, a counter's name ends with `_total`."""
        if self.buckets:
            return "histogram"
        return "counter" if self.name.endswith("_total") else "gauge"

    def of(self, values: Mapping[Labels, float]) -> Family:
        """The metric with the given values, by their labels. Not for histograms."""
        make = CounterMetricFamily if self.kind == "counter" else GaugeMetricFamily
        family = make(self.name, self.meaning, labels=self.labels)
        for labels, value in values.items():
            family.add_metric(labels, value)
        return family


METRICS: dict[str, Metric] = {}


def _metric(name: str, meaning: str, *labels: str, buckets: tuple[float, ...] = ()) -> Metric:
    metric = Metric(f"lakehouse_{name}", meaning, labels, buckets)
    METRICS[metric.name] = metric
    return metric


# Bronze.
LANDED = _metric(
    "landed_messages_total",
    "Messages landed in the bronze table of the topic, also those deleted since",
    "topic",
)
LANDED_MESSAGE = _metric(
    "landed_message_timestamp_seconds",
    "When the newest message in the bronze table of the topic was published",
    "topic",
)
LAG = _metric("lag_messages", "Messages of the topic that are not in bronze yet", "topic")
LAG_ENTRIES = _metric(
    "lag_entries",
    "Entries of the topic partition that are not in bronze yet; a batched entry has many messages",
    *("topic", "partition"),
)
LANDED_ENTRIES = _metric(
    "landed_entries",
    "Entries of the topic partition that are in bronze and that the broker still has",
    *("topic", "partition"),
)
BROKER_UP = _metric("broker_up", "1 if the broker answers, else 0")

# Silver.
REFINED = _metric(
    "refined_messages_total",
    "Messages that silver has processed; outcome is applied, superseded (stale or sent twice) or "
    "quarantined",
    *("topic", "outcome"),
)
UNREFINED = _metric(
    "unrefined_messages", "Messages in bronze that silver has not processed", "topic"
)
WAITED = _metric(
    "waited_messages_total", "Applied messages that arrived before a row they refer to", "topic"
)
LATE = _metric(
    "late_messages_total",
    "Messages whose event time is before the watermark of the topic by more than its lateness",
    "topic",
)
QUARANTINE = _metric("quarantine_records", "Records in quarantine that were not discarded", "topic")
MISSING = _metric(
    "missing_rows",
    "Rows whose lookup, or join, has not found its row yet; lookup is the name of either",
    "lookup",
)
REFINED_AT = _metric("refined_timestamp_seconds", "When silver last finished a batch")
REFINED_MESSAGE = _metric(
    "refined_message_timestamp_seconds",
    "Publish time of the newest message that silver has processed since the process began",
    "topic",
)
PUBLISH_TO_SILVER = _metric(
    "publish_to_silver_seconds",
    "Time from publishing the oldest message of a topic in a batch until it is readable in silver",
    "topic",
    buckets=(0.5, 1, 2, 5, 10, 30, 60, 300, 900, 3600, 14400, 86400),
)

# Tables of bronze and silver.
TABLE_ROWS = _metric("table_rows", "Rows of the table; a state includes deleted keys", "table")
TABLE_BYTES = _metric("table_bytes", "Size of the files of the table's last version", "table")
TABLE_FILES = _metric("table_files", "Files of the table's last version", "table")

# Gold.
PUBLISHED_AT = _metric("gold_published_timestamp_seconds", "When gold was last published")
UNPUBLISHED = _metric("gold_unpublished_batches", "Batches of silver that gold does not show yet")
BUILD_SECONDS = _metric(
    "gold_build_seconds", "Time from the start of the last published build until it was published"
)
BUILDS = _metric(
    "gold_builds_total", "Builds of gold; outcome is published, tested or failed", "outcome"
)

# Sinks.
UNSENT = _metric(
    "sink_unsent_versions", "Versions of its table that the sink has not sent yet", "sink"
)
EXPORTED = _metric(
    "exported_rows_total", "Rows that the sink has written to the database or deleted there", "sink"
)
REFUSED = _metric("refused_rows", "Rows of the sink that the database refuses now", "sink")

# Streams, and the reading of metrics.
BATCH_SECONDS = _metric(
    "batch_seconds",
    "Duration of a batch of the query",
    "query",
    buckets=(0.25, 0.5, 1, 2, 5, 10, 30, 60, 300, 900),
)
PHASE_SECONDS = _metric(
    "batch_phase_seconds_total",
    "Time spent in a phase of the query's batches; the phases are named by Spark",
    *("query", "phase"),
)
RUNNING = _metric("stream_running", "1 while the query runs, else 0", "query")
PROGRESS_AT = _metric(
    "stream_progress_timestamp_seconds",
    "When the query last finished a batch or found nothing to do",
    "query",
)
RESTARTS = _metric("stream_restarts_total", "Restarts of the query after a failure", "query")
COLLECTOR_UP = _metric("collector_up", "1 if the layer's metrics could be read, else 0", "layer")


def _counter(metric: Metric) -> Counter:
    return Counter(metric.name, metric.meaning, metric.labels)


def _gauge(metric: Metric) -> Gauge:
    return Gauge(metric.name, metric.meaning, metric.labels)


def _histogram(metric: Metric) -> Histogram:
    return Histogram(metric.name, metric.meaning, metric.labels, buckets=metric.buckets)


disable_created_metrics()  # type: ignore[no-untyped-call] # unused series

_refined_message = _gauge(REFINED_MESSAGE)
_publish_to_silver = _histogram(PUBLISH_TO_SILVER)
_batch_seconds = _histogram(BATCH_SECONDS)
_phase_seconds = _counter(PHASE_SECONDS)
_exported = _counter(EXPORTED)
_running = _gauge(RUNNING)
_progress_at = _gauge(PROGRESS_AT)
_restarts = _counter(RESTARTS)


def restarted(query: str) -> None:
    """Count a restart of a query after a failure."""
    _restarts.labels(query).inc()


def started(query: str) -> None:
    """Note that a query runs."""
    _running.labels(query).set(1)
    _restarts.labels(query)  # start at 0: Prometheus sees no increase in a first value of 1


def ended(query: str) -> None:
    """Note that a query has ended."""
    _running.labels(query).set(0)


def progressed(query: str) -> None:
    """Note that a query ended a batch, or found nothing to do."""
    _progress_at.labels(query).set_to_current_time()


def batch_done(query: str, total: float, phases: Mapping[str, float]) -> None:
    """Note the duration of a batch and of its phases, in seconds."""
    progressed(query)
    _batch_seconds.labels(query).observe(total)
    for phase, seconds in phases.items():
        _phase_seconds.labels(query, phase).inc(seconds)


def exported(sink: str, rows: int) -> None:
    """Count the rows of a batch of a sink to a database."""
    _exported.labels(sink).inc(rows)


def readable(topic: str, oldest: float, newest: float, now: float) -> None:
    """Note that a batch's messages are readable in silver. Called by silver after each batch.

    Args:
        topic: the topic of the messages.
        oldest: publish time of the batch's oldest message, in epoch seconds; so are the next two.
        newest: publish time of its newest message.
        now: when the messages became readable.
    """
    _publish_to_silver.labels(topic).observe(max(now - oldest, 0))
    _refined_message.labels(topic).set(newest)
