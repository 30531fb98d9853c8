"""The metrics of silver: what became of the messages, what waits, how large the tables are."""

from collections import Counter
from collections.abc import Iterator

import pyarrow.compute as pc
from prometheus_client.core import Metric as Family

from bronze import metrics
from bronze.direct import DirectTable, NewRows
from bronze.exporter import LayerCollector
from bronze.files import table_files
from bronze.measure import sizes
from bronze.metrics import Labels
from bronze.settings import LakeSettings
from bronze.tables import TableSpec, bronze_table
from bronze.topics import TopicFile
from silver.tables import CUTS, RECONCILIATION, enriched_table, silver_tables

OUTCOMES = ("applied", "superseded", "quarantined", "discarded")
COUNTS = ("messages_in", *OUTCOMES, "waiting", "late")


class BookTotals:
    """The books, added up over all batches; each look reads what is new."""

    def __init__(self, settings: LakeSettings) -> None:
        columns = ("silver_batch", "topic", *COUNTS)
        self._new = NewRows(RECONCILIATION, settings, columns, "silver_batch")
        self._batches: dict[str, Counter[str]] = {}
        self._decisions: dict[str, Counter[str]] = {}

    def read(self) -> None:
        """Bring the totals up to date."""
        rows, is_all = self._new.read()
        if is_all:
            self._batches, self._decisions = {}, {}
        rows = rows.append_column("is_decision", pc.less(rows["silver_batch"], 0))
        sums = rows.group_by(["topic", "is_decision"]).aggregate([(n, "sum") for n in COUNTS])
        for row in sums.to_pylist():
            kept = self._decisions if row["is_decision"] else self._batches
            counts = kept.setdefault(row["topic"], Counter())
            counts.update({name: row[f"{name}_sum"] for name in COUNTS})

    def of_batches(self, topic: str) -> Counter[str]:
        """What the batches of the query have booked of a topic; it only grows."""
        return self._batches.get(topic, Counter())

    def now(self, topic: str) -> Counter[str]:
        """The same, with what was decided about the quarantine since."""
        both = Counter(self.of_batches(topic))
        both.update(self._decisions.get(topic, {}))
        return both

    @property
    def topics(self) -> set[str]:
        """The topics that the books know."""
        return {*self._batches, *self._decisions}


def silver_collector(settings: LakeSettings, topics: TopicFile) -> LayerCollector:
    """Reads silver's metrics."""
    books = BookTotals(settings)

    def read() -> Iterator[Family]:
        files = table_files(settings, silver_tables(topics))
        yield from sizes(files)
        if (cuts := files.get(CUTS.full_name)) and (last := cuts.newest("committed_at")):
            yield metrics.REFINED_AT.of({(): last.timestamp()})
        if RECONCILIATION.full_name in files:
            books.read()
        yield from _booked(books, topics)
        landed = table_files(settings, map(bronze_table, topics.topics))  # after the books
        yield metrics.UNREFINED.of(
            {
                (name,): max(each.rows - books.of_batches(name)["messages_in"], 0)
                for name in topics.topics
                if (each := landed.get(bronze_table(name).full_name))
            }
        )
        yield metrics.MISSING.of(_missing(settings, topics))

    return LayerCollector("silver", read)


def _booked(books: BookTotals, topics: TopicFile) -> Iterator[Family]:
    of_batches = {name: books.of_batches(name) for name in topics.topics}
    yield metrics.REFINED.of(
        {(n, o): counts[o] for n, counts in of_batches.items() for o in OUTCOMES[:3]}
    )
    yield metrics.WAITED.of({(name,): counts["waiting"] for name, counts in of_batches.items()})
    yield metrics.LATE.of({(name,): counts["late"] for name, counts in of_batches.items()})
    yield metrics.QUARANTINE.of({(n,): books.now(n)["quarantined"] for n in topics.topics})


def count_missing(settings: LakeSettings, table: TableSpec, lookup: str) -> int:
    """How many rows of an enriched table miss a lookup; few do, and statistics skip the others."""
    condition = f"missing_lookups > 0 AND `{lookup}_position` IS NULL"
    return DirectTable(table, settings).count(condition)


def _missing(settings: LakeSettings, topics: TopicFile) -> dict[Labels, int]:
    return {
        (lookup,): count_missing(settings, table, lookup)
        for topic in topics.events()
        if (table := enriched_table(topic, topics)).exists(settings)
        for lookup in topic.lookups
    }
