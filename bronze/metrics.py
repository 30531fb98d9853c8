"""Reads the metrics of bronze: landed messages, and messages waiting in the topics."""

from collections.abc import Iterator
from functools import partial

from prometheus_client.core import Metric as Family

from bronze.expiry import expired_messages
from bronze.lag import topic_lag
from lake.observe import metrics
from lake.observe.exporter import LayerCollector
from lake.observe.metrics import Labels
from lake.tables.lake import Lake
from lake.tables.log import TableFiles
from lake.tables.spec import bronze_table
from lake.tables.table import files_of_each
from pulsar_spark.broker.admin import PulsarAdmin

ANSWER_SECONDS = 5.0


def bronze_collector(lake: Lake) -> LayerCollector:
    """The collector of bronze's metrics. Reads Delta logs and asks the broker, without Spark."""
    return LayerCollector("bronze", partial(_read, lake))


def _read(lake: Lake) -> Iterator[Family]:
    tables = {name: lake.table(bronze_table(name)) for name in lake.topics.topics}
    files = files_of_each(tables.values())
    landed: dict[Labels, int] = {
        (t,): files[table.full_name].rows + expired_messages(table.arrow)
        for t, table in tables.items()
        if table.full_name in files
    }
    yield metrics.LANDED.of(landed)
    newest = {t: files[f"bronze.{t}"].newest("publish_time") for (t,) in landed}
    instants: dict[Labels, float] = {(t,): at.timestamp() for t, at in newest.items() if at}
    yield metrics.LANDED_MESSAGE.of(instants)
    yield from sizes(files)
    yield from _lag(lake, landed)


def _lag(lake: Lake, landed: dict[Labels, int]) -> Iterator[Family]:
    with PulsarAdmin(lake.settings.connection, ANSWER_SECONDS) as admin:
        answers = admin.is_healthy()
        yield metrics.BROKER_UP.of({(): float(answers)})
        if not answers:
            return
        lags = {name: topic_lag(admin, lake, name) for name in lake.topics.topics}
    yield metrics.LAG.of({(n,): lag.messages(landed.get((n,), 0)) for n, lag in lags.items()})
    for metric, part in ((metrics.LAG_ENTRIES, "waiting"), (metrics.LANDED_ENTRIES, "landed")):
        yield metric.of(
            {
                (name, _number(partition)): entries
                for name, lag in lags.items()
                for partition, entries in getattr(lag, part).items()
            }
        )


def _number(partition: str) -> str:
    """The number of a topic partition; -1 for a topic without partitions."""
    _, mark, number = partition.rpartition("-partition-")
    return number if mark else "-1"


def sizes(files: dict[str, TableFiles]) -> list[Family]:
    """The metrics of table sizes, from the statistics of `files_of_each`."""
    return [
        metrics.TABLE_ROWS.of({(name,): each.rows for name, each in files.items()}),
        metrics.TABLE_BYTES.of({(name,): each.size for name, each in files.items()}),
        metrics.TABLE_FILES.of({(name,): each.count for name, each in files.items()}),
    ]
