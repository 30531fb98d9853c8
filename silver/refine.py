"""Main path of silver: one streaming query over all bronze tables, one batch after the other.

A batch first updates the state of the changelogs. It then writes the events with their lookups,
completes rows whose lookup had found nothing before, and writes the audit. Because there is only
one query, a batch that is replayed after a crash at any point changes nothing (invariant 6).
Guarantee: exactly once, because MERGEs compare positions. Grain and schema: `contract/tables.py`.
"""

import contextlib
import datetime as dt
from collections.abc import Collection, Iterator, Mapping
from functools import partial, reduce
from typing import Any

import structlog
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from lake.observe.lineage import Flow, table_place
from lake.streams.checkpoint import (
    BatchSpan,
    Checkpoint,
    Running,
    claim_tables,
    newest_batch,
    start_query,
)
from lake.streams.failures import StartAgainError
from lake.streams.restart import complete_plans
from lake.streams.supervisor import Stream
from lake.tables.lake import Lake
from lake.tables.spec import APPEND_ONLY, TableSpec, as_messages, bronze_table
from lake.topics.topic import Topic
from pulsar_spark.errors import LakehouseError
from silver.audit.reconcile import BatchAudit, Watermarks
from silver.audit.snapshots import SilverSnapshot, latest_snapshot
from silver.contract.evolved import evolved
from silver.contract.tables import (
    CUTS,
    QUARANTINE,
    RECONCILIATION,
    changes_table,
    enriched_table,
    history_table,
    main_table,
    own_tables,
    silver_tables,
    state_table,
    view_table,
)
from silver.declared import record_declarations, refuse_changed_declarations
from silver.enrichment.enrich import Enriched, apply_events
from silver.enrichment.lookups import Lookups
from silver.maintenance import CONFIGURATION, Maintenance
from silver.materialized import KeptView
from silver.records.batch import Decoded
from silver.records.batch_stats import BatchStats, few
from silver.records.by_schema import Version
from silver.records.computed import check_expressions
from silver.records.decode import Decoder, without_what_was_good
from silver.records.masking import protect, require_secret
from silver.records.pseudonymize import Forgotten
from silver.records.schemas import SchemaRegistry, versions_of
from silver.state.changelog import apply_changes
from silver.state.merge_chains import resolve
from silver.state.scd2 import apply_history
from silver.state.tombstones import refuse_collected
from silver.state.versions import apply_versions

QUERY = "silver"
SOURCES_BY_NAME = {
    "spark.sql.streaming.queryEvolution.enableSourceEvolution": "true",
    "spark.sql.streaming.offsetLog.formatVersion": "2",
}
# Compressing the cached rows of a batch takes longer than decoding them.
KEPT_AS_IT_IS = {"spark.sql.inMemoryColumnarStorage.compressed": "false"}
BYTES_PER_BATCH = "256m"
PARTITIONS = "spark.sql.shuffle.partitions"
CODEGEN = "spark.sql.codegen.factoryMode"
# In a table with more rows than this, generated code finds rows faster.
MANY_ROWS = 500_000

log = structlog.get_logger()


def refine(spark: SparkSession, lake: Lake, *, available_now: bool = False) -> list[Stream]:
    """Start the silver query. With `available_now`, it ends when it has caught up.

    Errors at the start are raised by `keep` of the stream.
    """
    start = partial(refine_all, spark, lake, available_now=available_now)
    read = map(bronze_table, lake.topics.topics)
    flow = Flow(
        tuple(table_place(lake.settings, lake.table(spec)) for spec in read),
        tuple(table_place(lake.settings, lake.table(spec)) for spec in silver_tables(lake.topics)),
    )
    return [Stream(QUERY, lake.settings, start, available_now=available_now, flow=flow).begin()]


def refine_all(spark: SparkSession, lake: Lake, *, available_now: bool) -> Running:
    """Start the silver query.

    Raises:
        CheckpointError: checkpoint and tables do not belong together, or are in use.
        LakehouseError: a bronze table does not exist yet, or a declaration has changed by which
            existing rows would be other rows.
        SettingsError: fields are declared as hashed, but the secret is not set or has changed, or
            Spark refuses the expression of a computed field.
    """
    lake = _with_new_fields(lake)
    require_bronze(lake)
    require_secret(lake)
    check_expressions(spark, lake.topics.topics.values())
    refuse_changed_declarations(lake)
    specs = own_tables(lake)
    checkpoint = claim_tables(spark, lake, QUERY, specs)
    try:
        for spec in specs:
            record_declarations(spark, lake.table(spec))
        protect(spark, lake)
        batch = Refinery(lake, checkpoint)
    except BaseException:
        checkpoint.release()
        raise
    complete_plans(checkpoint)
    # With named sources, topics can be added to a lake and removed. Only this query's session gets
    # the option, because Spark then requires names from every query of the session.
    session = spark.newSession()
    for name, value in (SOURCES_BY_NAME | KEPT_AS_IT_IS | CONFIGURATION).items():
        session.conf.set(name, value)
    messages = read_bronze(session, lake)
    trigger = lake.settings.silver_trigger
    return start_query(messages, batch.refine, trigger, checkpoint, available_now=available_now)


def _with_new_fields(lake: Lake) -> Lake:
    found = evolved(lake, strict=True)
    for name, topic in found.topics.topics.items():
        if added := [*(topic.fields.keys() - lake.topics.topics[name].fields.keys())]:
            log.info("fields taken over from the registry", topic=name, fields=sorted(added))
    return found


def refined_topics(lake: Lake) -> list[Topic]:
    """The topics whose tables are the lake's own: all, unless it is beside another lake."""
    topics = lake.topics.topics.values()
    return [topic for topic in topics if lake.owns(main_table(topic, lake.topics))]


def require_bronze(lake: Lake) -> None:
    """Check that the bronze tables that silver reads exist.

    Raises:
        LakehouseError: one does not exist.
    """
    for topic in refined_topics(lake):
        table = lake.table(bronze_table(topic.name))
        if not table.exists():
            message = (
                f"The table {table.full_name} does not exist yet at {table.path}, so "
                "silver has nothing to read. Run `lakehouse bronze --available-now` first."
            )
            raise LakehouseError(message)


def read_bronze(spark: SparkSession, lake: Lake) -> DataFrame:
    """Stream the new messages of all bronze tables, with their topic's short name in `source`."""
    streams, is_new = [], newest_batch(lake.settings, QUERY) is None
    for topic in refined_topics(lake):
        stream = spark.readStream.format("delta").name(topic.name)
        stream = stream.option("maxBytesPerTrigger", BYTES_PER_BATCH)
        table = lake.table(bronze_table(topic.name))
        bronze = table.log()
        if is_new and not bronze.file_uris():
            # Otherwise Spark begins with a snapshot, and needs seconds to find that it is empty.
            stream = stream.option("startingVersion", bronze.version())
        if topic.keep or bronze.metadata().configuration.get(APPEND_ONLY) == "false":
            # Commits that delete old messages, also those from before `keep` was removed.
            stream = stream.option("skipChangeCommits", "true")
        messages = as_messages(stream.load(table.path))
        streams.append(messages.withColumn("source", F.lit(topic.name)))
    return reduce(DataFrame.unionByName, streams)


class Refinery:
    """Processes the batches of the silver query, and keeps caches from batch to batch."""

    def __init__(self, lake: Lake, checkpoint: Checkpoint) -> None:
        self._lake = lake
        self._checkpoint = checkpoint
        self._lookups = Lookups(lake)
        topics = refined_topics(lake)
        self._changelogs = [topic for topic in topics if topic.kind == "changelog"]
        self._events = [topic for topic in topics if topic.kind == "events"]
        self._searched = [main_table(topic, lake.topics) for topic in topics]
        self._registry = SchemaRegistry(lake)
        self._forgotten = Forgotten(lake)
        self._maintenance = Maintenance(lake, checkpoint)
        self._decoders: dict[str, tuple[frozenset[Version], Decoder]] = {}
        self._watermarks: Watermarks | None = None
        self._partitions: str | None = None
        self._views = [
            KeptView(lake, query)
            for query in lake.topics.view_queries
            if lake.owns(view_table(query.view, lake.topics))
        ]
        self._snapshot: SilverSnapshot | None = None

    def refine(self, batch: DataFrame, span: BatchSpan) -> None:
        """Bring silver up to date with a batch. Called by Spark through `foreachBatch`.

        After a crash, Spark calls it again with the same rows, which changes nothing.
        """
        spark, batch_id, moved = batch.sparkSession, span.id, span.moved
        if self._watermarks is None:  # as of the batches before, even in a replay
            self._watermarks = Watermarks.read(self._lake, batch_id)
        audit = BatchAudit(batch_id, self._watermarks)
        stats = BatchStats.read(self._lake, moved)
        self._maintenance.before(spark, batch_id)
        self._fit_to_size(spark, small=stats is not None and stats.are_few)
        with self._decoded(batch, moved, stats) as decoded:
            audit.count(batch, stats, decoded, self._lake.topics)
            if audit.topics:  # Spark runs one empty batch for tables without rows
                small = stats.are_few if stats else few(audit.messages_in)
                self._fit_to_size(spark, small=small)
                self._apply(spark, decoded, audit, small=small)
                self._quarantine(decoded, audit)
                self._write_audit(audit, span.ends)
                audit.report(dt.datetime.now(dt.timezone.utc))
                self._maintenance.after(spark, batch_id)
        log.info("batch refined", batch=batch_id, **audit.totals())

    @contextlib.contextmanager
    def apply_again(
        self, messages: DataFrame, names: Collection[str], batch_id: int
    ) -> Iterator[DataFrame]:
        """Apply the messages in quarantine that are good now. A replay changes nothing.

        Args:
            messages: bronze messages with the columns of `read_bronze`.
            names: their topics.
            batch_id: a negative number, so that it differs from the query's batches.

        Yields:
            `topic`, `position` and `reason` of each message; the reason is NULL if it is good.
        """
        audit = BatchAudit(batch_id, Watermarks())
        with self._decoded(messages, names, None) as decoded:
            audit.count(messages, None, decoded, self._lake.topics)
            self._apply(messages.sparkSession, decoded, audit, small=few(audit.messages_in))
            verdicts = [
                each.verdicts.select(F.lit(name).alias("topic"), "position", "reason")
                for name, each in decoded.items()
            ]
            yield reduce(DataFrame.unionAll, verdicts)

    @contextlib.contextmanager
    def _decoded(
        self, batch: DataFrame, names: Collection[str], stats: BatchStats | None
    ) -> Iterator[dict[str, Decoded]]:
        """The decoded rows of some topics of a batch, released at the end of the block."""
        are_few = stats is not None and stats.are_few
        decoded = {name: Decoded(self._decode(batch, name), few=are_few) for name in names}
        try:
            yield decoded
        finally:
            for rows in decoded.values():
                rows.release()

    def _fit_to_size(self, spark: SparkSession, *, small: bool) -> None:
        """Let one task decode a small batch without generating code, which would not pay off."""
        if self._partitions is None:
            self._partitions = spark.conf.get(PARTITIONS)
        spark.conf.set(PARTITIONS, "1" if small else str(self._partitions))
        spark.conf.set(CODEGEN, "NO_CODEGEN" if small else "FALLBACK")

    def _decode(self, batch: DataFrame, name: str) -> DataFrame:
        topic, messages = self._lake.topics.topics[name], batch.where(F.col("source") == name)
        versions = versions_of(topic, messages)
        known, decoder = self._decoders.get(name, (frozenset[Version](), None))
        if decoder is None or not versions <= known:
            known |= versions
            schemas = self._registry.schemas(topic, known) if topic.format == "registry" else {}
            if topic.evolve and evolved(self._lake, strict=True) is not self._lake:
                message = f"The schema of {name} has new fields, which are taken over."
                raise StartAgainError(message)
            decoder = Decoder(topic, schemas, self._lake.settings.pseudonyms)
            self._decoders[name] = known, decoder
        rows = self._forgotten.conceal(decoder.rows(messages), topic, self._lake.topics)
        if topic.tombstones_days is not None:
            rows = refuse_collected(rows, topic, self._lake)
        return without_what_was_good(rows)

    def _apply(
        self, spark: SparkSession, decoded: dict[str, Decoded], audit: BatchAudit, *, small: bool
    ) -> None:
        if any(self._lake.table(table).arrow.count_rows() > MANY_ROWS for table in self._searched):
            spark.conf.set(CODEGEN, "FALLBACK")
        rows = {
            name: each
            for name, each in decoded.items()
            if name in audit.topics and audit.topics[name].good
        }
        for topic in self._changelogs:
            if topic.name in rows:
                self._apply_changes(spark, rows[topic.name].good, topic, audit, small=small)
        for topic in self._events:
            table = self._lake.table(enriched_table(topic, self._lake.topics))
            enriched = Enriched(topic, table, partial(table.spark, spark), table.arrow)
            lookups = self._lookups.states(spark, topic, rows, audit.batch_id)
            mine = rows.get(topic.name)
            apply_events(enriched, mine, lookups, audit.batch_id, small=small)
        audit.count_applied(self._lake)
        self.keep_views(spark, audit.batch_id)

    def keep_views(self, spark: SparkSession, batch_id: int) -> None:
        """Update the materialized views with what a batch wrote. A replay changes nothing."""
        if self._views:
            before = self._snapshot or latest_snapshot(
                self._lake, lambda row: row["silver_batch"] != batch_id
            )
            for view in self._views:
                view.refresh(spark, batch_id, before)

    def recompute_views(self, spark: SparkSession, batch_id: int) -> None:
        """Compute the materialized views again from all rows. Called when rows have new keys."""
        for view in self._views:
            view.recompute(spark, batch_id)

    def _apply_changes(
        self, spark: SparkSession, rows: DataFrame, topic: Topic, audit: BatchAudit, *, small: bool
    ) -> None:
        changes = rows.withColumn("silver_batch", F.lit(audit.batch_id).cast("bigint"))
        if topic.history:
            history = self._lake.table(history_table(topic))
            if topic.keeps_changes:
                kept = self._lake.table(changes_table(topic))
                apply_versions(history, kept, changes, topic, audit.batch_id, small=small)
            else:
                apply_history(history, changes, topic, small=small)
            changes = changes.drop("valid_from")
        state = self._lake.table(state_table(topic))
        find = self._lookups.find(topic, state.arrow)
        apply_changes(state, find, changes, topic, small=small)
        if topic.merged_into:
            resolve(spark, state, topic)

    def _quarantine(self, decoded: dict[str, Decoded], audit: BatchAudit) -> None:
        rejected = [
            each.refused.withColumn("topic", F.lit(name))
            for name, each in decoded.items()
            if name in audit.topics and audit.topics[name].quarantined
        ]
        if rejected:
            columns = [column.name for column in QUARANTINE.columns]
            batch = F.lit(audit.batch_id).cast("bigint")
            ours = {"silver_batch": batch, "status": F.lit("open")}
            parts = [rows.withColumns(ours).select(columns) for rows in rejected]
            # Delta recognises a replay of the batch by the transaction id, and skips it.
            (
                reduce(DataFrame.unionByName, parts)
                .write.format("delta")
                .mode("append")
                .option("txnAppId", self._checkpoint.app_id(QUARANTINE))
                .option("txnVersion", audit.batch_id)
                .save(self._lake.table(QUARANTINE).path)
            )

    def _write_audit(self, audit: BatchAudit, ends: Mapping[str, Any]) -> None:
        """Write the audit, and then the snapshot, which marks the batch as complete."""
        self._append_once(RECONCILIATION, audit.rows(), audit.batch_id)
        snapshot = SilverSnapshot.now(self._lake, audit.batch_id, ends)
        self._append_once(CUTS, [snapshot.row()], audit.batch_id)
        audit.advance()
        self._snapshot = snapshot

    def _append_once(self, table: TableSpec, rows: list[dict[str, Any]], batch_id: int) -> None:
        app_id = self._checkpoint.app_id(table)
        self._lake.table(table).arrow.append_once(rows, app_id, batch_id)
