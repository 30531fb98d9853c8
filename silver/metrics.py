"""Reads the metrics of silver: outcomes of messages, incomplete rows, and table sizes."""

from collections.abc import Iterator

from prometheus_client.core import Metric as Family

from bronze.metrics import sizes
from lake.observe import metrics
from lake.observe.exporter import LayerCollector
from lake.observe.metrics import Labels
from lake.tables.lake import Lake
from lake.tables.spec import bronze_table
from lake.tables.table import files_of_each
from lake.topics.topic_file import TopicFile
from silver.audit.totals import OUTCOMES, AuditTotals, count_missing, count_without_partner
from silver.contract.tables import (
    CUTS,
    RECONCILIATION,
    enriched_table,
    silver_tables,
    view_table,
)


def silver_collector(lake: Lake) -> LayerCollector:
    """The collector of silver's metrics. Reads Delta logs and small tables, without Spark."""
    audit = AuditTotals(lake)

    def read() -> Iterator[Family]:
        files = files_of_each(map(lake.table, silver_tables(lake.topics)))
        yield from sizes(files)
        if (cuts := files.get(CUTS.full_name)) and (last := cuts.newest("committed_at")):
            yield metrics.REFINED_AT.of({(): last.timestamp()})
        if RECONCILIATION.full_name in files:
            audit.read()
        yield from _audited(audit, lake.topics)
        # Read after the audit, so that bronze is not older than what silver has counted.
        landed = files_of_each(map(lake.table, map(bronze_table, lake.topics.topics)))
        yield metrics.UNREFINED.of(
            {
                (name,): max(each.rows - audit.of_batches(name)["messages_in"], 0)
                for name in lake.topics.topics
                if (each := landed.get(bronze_table(name).full_name))
            }
        )
        yield metrics.MISSING.of(_missing(lake))

    return LayerCollector("silver", read)


def _audited(audit: AuditTotals, topics: TopicFile) -> Iterator[Family]:
    of_batches = {name: audit.of_batches(name) for name in topics.topics}
    yield metrics.REFINED.of(
        {(n, o): counts[o] for n, counts in of_batches.items() for o in OUTCOMES[:3]}
    )
    yield metrics.WAITED.of({(name,): counts["waiting"] for name, counts in of_batches.items()})
    yield metrics.LATE.of({(name,): counts["late"] for name, counts in of_batches.items()})
    yield metrics.QUARANTINE.of({(n,): audit.now(n)["quarantined"] for n in topics.topics})


def _missing(lake: Lake) -> dict[Labels, int]:
    lookups: dict[Labels, int] = {
        (name.removeprefix("missing_"),): count_missing(table, lookup)
        for name, (topic, lookup) in lake.topics.missing_views().items()
        if (table := lake.table(enriched_table(topic, lake.topics))).exists()
    }
    joins: dict[Labels, int] = {
        (name,): count_without_partner(table, join)
        for name, join in lake.topics.joined.items()
        if (table := lake.table(view_table(join.view, lake.topics))).exists()
    }
    return lookups | joins
