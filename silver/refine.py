"""Main path of silver: one streaming query over all bronze tables, one batch after the other.

A batch first brings the state of the changelogs up to date, then writes the events with what the
state knows, completes what waited, and books what came in. One query means one order of events:
the same batch, replayed after a crash at any point, changes nothing (invariant 6).
Guarantee: exactly once by position-guarded MERGEs. Grain and contracts: `tables.py`.
"""

from collections.abc import Mapping
from functools import reduce

import structlog
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from bronze.checkpoint import Checkpoint, Running, claim_tables, start_query
from bronze.errors import LakehouseError
from bronze.settings import LakeSettings
from bronze.tables import TableSpec, bronze_table
from bronze.topics import Topic, TopicFile, snake_case
from silver.changelog import apply_changes
from silver.decode import AS_IT_CAME, decode
from silver.enrich import LookupState, apply_events
from silver.payload import Schema
from silver.reconcile import Books
from silver.schemas import SchemaRegistry
from silver.tables import (
    QUARANTINE,
    RECONCILIATION,
    enriched_table,
    field_columns,
    silver_tables,
    state_table,
)

QUERY = "silver"
SOURCES_BY_NAME = {
    "spark.sql.streaming.queryEvolution.enableSourceEvolution": "true",
    "spark.sql.streaming.offsetLog.formatVersion": "2",
}
BYTES_PER_BATCH = "256m"

log = structlog.get_logger()


def refine(
    spark: SparkSession, settings: LakeSettings, topics: TopicFile, *, available_now: bool = False
) -> list[Running]:
    """Start the one silver query; with `available_now` it ends when it has caught up with bronze.

    Raises:
        CheckpointError: checkpoint and tables do not belong together, or are in use.
        LakehouseError: there is no bronze table yet.
    """
    require_bronze(settings, topics)
    checkpoint = claim_tables(spark, settings, QUERY, silver_tables(topics))
    # By name, topics may be added to a lake and taken away. For this query alone: Spark then asks
    # it of every query of the session.
    session = spark.newSession()
    for name, value in SOURCES_BY_NAME.items():
        session.conf.set(name, value)
    messages = read_bronze(session, settings, topics)
    batch = Refinery(settings, topics, checkpoint)
    writer = messages.writeStream.queryName(QUERY).foreachBatch(batch.refine)
    return [start_query(writer, settings, checkpoint, available_now=available_now)]


def require_bronze(settings: LakeSettings, topics: TopicFile) -> None:
    """See that all bronze tables are there.

    Raises:
        LakehouseError: one is not.
    """
    for topic in topics.topics.values():
        table = bronze_table(topic.name)
        if not table.exists(settings):
            message = (
                f"There is no table {table.full_name} at {table.path(settings)} yet, so silver has "
                "nothing to read. Run `lakehouse bronze --available-now` first."
            )
            raise LakehouseError(message)


def read_bronze(spark: SparkSession, settings: LakeSettings, topics: TopicFile) -> DataFrame:
    """The new messages of all bronze tables, with their topic's short name in `source`."""
    streams = []
    for topic in topics.topics.values():
        stream = spark.readStream.format("delta").name(topic.name)
        stream = stream.option("maxBytesPerTrigger", BYTES_PER_BATCH)
        messages = stream.load(bronze_table(topic.name).path(settings)).drop("topic")
        streams.append(messages.withColumn("source", F.lit(topic.name)))
    return reduce(DataFrame.unionByName, streams)


class Refinery:
    """What the silver query does with one batch."""

    def __init__(self, settings: LakeSettings, topics: TopicFile, checkpoint: Checkpoint) -> None:
        self._settings = settings
        self._topics = topics
        self._checkpoint = checkpoint
        self._registry = SchemaRegistry(settings)

    def refine(self, batch: DataFrame, batch_id: int) -> None:
        """Bring silver up to date with a batch; called again with the same rows after a crash."""
        books = Books(batch_id)
        versions: dict[str, set[int]] = {}
        for row in batch.groupBy("source", "schema_version").count().collect():
            books.topic(row["source"]).messages_in += row["count"]
            if row["schema_version"] is not None:
                versions.setdefault(row["source"], set()).add(row["schema_version"])
        if not books.topics:  # Spark runs one empty batch for tables without rows
            return
        decoded = {
            name: decode(
                batch.where(F.col("source") == name),
                topic,
                self._schemas(topic, versions.get(name, set())),
            ).persist()
            for name, topic in self._topics.topics.items()
            if name in books.topics
        }
        try:
            self._count(decoded, books)
            self._apply(batch.sparkSession, decoded, books)
            self._quarantine(decoded, books)
            self._append(books.to_frame(batch.sparkSession), RECONCILIATION, batch_id)
        finally:
            for rows in decoded.values():
                rows.unpersist()
        log.info("batch refined", batch=batch_id, **books.totals())

    def _schemas(self, topic: Topic, versions: set[int]) -> Mapping[int, Schema]:
        return self._registry.schemas(topic, versions) if topic.format == "registry" else {}

    def _count(self, decoded: dict[str, DataFrame], books: Books) -> None:
        """Book what was decoded; the one job that fills the cache of all decoded rows."""
        parts = [_named(rows.select("reason"), name) for name, rows in decoded.items()]
        rows = reduce(DataFrame.unionAll, parts).groupBy("source")
        for row in rows.agg(F.count("*"), F.count("reason")).collect():
            books.topic(row[0]).decoded, books.topic(row[0]).quarantined = row[1:]

    def _apply(self, spark: SparkSession, decoded: dict[str, DataFrame], books: Books) -> None:
        rows = {
            name: good_rows(table)
            for name, table in decoded.items()
            if books.topic(name).quarantined < books.topic(name).decoded
        }
        written = []
        for topic in self._topics.changelogs():
            if topic.name in rows:
                state = state_table(topic).open(spark, self._settings)
                changes = rows[topic.name].withColumn("silver_batch", F.lit(books.batch_id))
                apply_changes(state, changes, topic)
                mine = state.toDF().where(F.col("silver_batch") == books.batch_id)
                written.append(_named(mine.select(F.lit(0)), topic.name))
        for topic in self._topics.events():
            enriched = enriched_table(topic, self._topics).open(spark, self._settings)
            lookups = self._lookup_states(spark, topic, rows)
            apply_events(enriched, rows.get(topic.name), topic, lookups, books.batch_id)
            if topic.name in rows:
                mine = enriched.toDF().where(F.col("arrived_batch") == books.batch_id)
                written.append(_named(mine.select("missing_lookups"), topic.name))
        if written:
            self._book_applied(reduce(DataFrame.unionAll, written), books)

    def _book_applied(self, written: DataFrame, books: Books) -> None:
        """Count by the batch id in the tables: a replay, which writes nothing, books the same."""
        counts = F.count("*"), F.count_if(F.col("missing_lookups") > 0)
        for row in (
            written.toDF("missing_lookups", "source").groupBy("source").agg(*counts).collect()
        ):
            books.topic(row[0]).applied, books.topic(row[0]).waiting = row[1:]

    def _lookup_states(
        self, spark: SparkSession, topic: Topic, rows: dict[str, DataFrame]
    ) -> list[LookupState]:
        found = []
        for name, lookup in topic.lookups.items():
            target = self._topics.topics[lookup.topic]
            state = state_table(target).open(spark, self._settings).toDF()
            columns = [column.name for column in field_columns(target)]
            on, key = snake_case(lookup.on), target.key_columns[0]
            changed = rows.get(lookup.topic)
            found.append(LookupState(name, on, key, columns, state, changed))
        return found

    def _quarantine(self, decoded: dict[str, DataFrame], books: Books) -> None:
        rejected = [
            rows.where("reason IS NOT NULL").withColumn("topic", F.lit(name))
            for name, rows in decoded.items()
            if books.topic(name).quarantined
        ]
        if rejected:
            columns = [column.name for column in QUARANTINE.columns]
            batch = F.lit(books.batch_id).cast("bigint")
            parts = [rows.withColumn("silver_batch", batch).select(columns) for rows in rejected]
            self._append(reduce(DataFrame.unionByName, parts), QUARANTINE, books.batch_id)

    def _append(self, rows: DataFrame, table: TableSpec, batch_id: int) -> None:
        """Append once: a replay of the batch is recognised by the transaction id and skipped."""
        (
            rows.write.format("delta")
            .mode("append")
            .option("txnAppId", self._checkpoint.app_id(table))
            .option("txnVersion", batch_id)
            .save(table.path(self._settings))
        )


def good_rows(decoded: DataFrame) -> DataFrame:
    """The decoded records without a reason to refuse them, bare of what came."""
    return decoded.where("reason IS NULL").drop("reason", *AS_IT_CAME)


def _named(rows: DataFrame, source: str) -> DataFrame:
    return rows.withColumn("source", F.lit(source))
