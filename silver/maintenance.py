"""Compacts silver's tables, and deletes their old versions, tombstones and events.

The job that writes the tables also maintains them (invariant 5). It does so between two batches, so
nothing else writes at that time.
"""

import datetime as dt
import time
from functools import partial

import structlog
from pyspark.sql import SparkSession

from bronze.upkeep import FILE_SIZE, Daily, compact
from lake.streams.checkpoint import Checkpoint
from lake.tables.lake import Lake
from lake.tables.spec import DELETION_VECTORS
from lake.tables.table import Table
from silver.contract.tables import own_tables, state_table
from silver.expiry import expire_events
from silver.retention import drop_old_batches
from silver.state.tombstones import collect_tombstones

EVERY_BATCHES = 50
# With fewer, writing each change once or twice more a day would cost more than it saves.
MANY_OVERLAPPING_FILES = 8
# Settings for the session of the query.
CONFIGURATION = {
    "spark.databricks.delta.optimize.minFileSize": str(FILE_SIZE),
    "spark.databricks.delta.optimize.maxFileSize": str(4 * FILE_SIZE),
    # VACUUM lists a folder in this many tasks, by default 10,000.
    "spark.sql.sources.parallelPartitionDiscovery.parallelism": "4",
}

log = structlog.get_logger()


class Maintenance:
    """Maintains the tables of the silver query before and after batches."""

    def __init__(self, lake: Lake, checkpoint: Checkpoint) -> None:
        self._lake = lake
        self._tables = [*map(lake.table, own_tables(lake))]
        self._forgetful = [
            topic
            for topic in lake.topics.changelogs()
            if topic.tombstones_days and lake.owns(state_table(topic))
        ]
        self._expires = any(topic.keep for topic in lake.topics.events())
        self._daily = Daily(checkpoint)
        self._begun_before = checkpoint.unfinished

    def before(self, spark: SparkSession, batch_id: int) -> None:
        """Once a day, delete events that are too old, and collect old tombstones.

        This is not done after a batch, because a batch that is run again must find the same rows as
        the first time. For the same reason, tombstones are not collected before a batch that an
        earlier process has begun.
        """
        if not (self._forgetful or self._expires) or not self._daily.is_due():
            return
        now = dt.datetime.now(dt.timezone.utc)
        if self._expires:
            expire_events(spark, self._lake, now, batch_id)
        if batch_id != self._begun_before:
            for topic in self._forgetful:
                collect_tombstones(spark, self._lake, topic, now)

    def after(self, spark: SparkSession, batch_id: int) -> None:
        """Compact small files every `EVERY_BATCHES` batches.

        Once a day, also cluster the tables, and delete old audit rows, snapshots and versions.
        """
        if batch_id % EVERY_BATCHES == 0:
            for table in self._tables:
                self._compact(spark, table)
        if self._daily.is_due():
            for table in self._tables:
                self._cluster(spark, table)
            drop_old_batches(self._lake, dt.datetime.now(dt.timezone.utc))
            for table in self._tables:
                table.spark(spark).vacuum(self._lake.settings.history_days * 24)
            self._daily.done()

    def _cluster(self, spark: SparkSession, table: Table) -> None:
        """Sort the rows by their key again if a key may be in any of many files.

        Each batch writes changes to new files, which span all keys.
        """
        columns = table.spec.clustered_by
        if not columns:
            return
        overlap = table.arrow.overlap(columns[0])
        if overlap >= MANY_OVERLAPPING_FILES:
            begun = time.monotonic()
            table.spark(spark).optimize().executeZOrderBy(*columns)
            took = round(time.monotonic() - begun, 1)
            log.info("clustered", table=table.full_name, overlap=round(overlap, 1), seconds=took)

    def _compact(self, spark: SparkSession, table: Table) -> None:
        """Compact a table with delta-rs if possible, because the next batch waits.

        Delta-rs takes a tenth of the time of Spark.
        """
        direct = table.arrow
        has_vectors = direct.configuration(DELETION_VECTORS) == "true"
        by_spark = partial(_compact_by_spark, spark, table) if has_vectors else None
        compact(direct, table.full_name, by_spark)


def _compact_by_spark(spark: SparkSession, table: Table) -> None:
    table.spark(spark).optimize().executeCompaction()
