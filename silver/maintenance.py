"""Small files, old versions and old tombstones of silver's tables, kept in check by the job that
writes them (invariant 5): between two batches, so nothing else writes at that time.
"""

import datetime as dt
import time
from functools import partial

import structlog
from pyspark.sql import SparkSession

from bronze.upkeep import FILE_SIZE, Daily, compact
from lake.settings.settings import LakeSettings
from lake.streams.checkpoint import Checkpoint
from lake.tables.arrow import DirectTable
from lake.tables.table import TableSpec
from lake.topics.topic_file import TopicFile
from silver.contract.tables import DELETION_VECTORS, silver_tables
from silver.retention import drop_old_batches
from silver.state.tombstones import collect_tombstones

EVERY_BATCHES = 50
# Below it, that each change is written once or twice more a day would cost more than it saves.
MANY_OVERLAPPING_FILES = 8
# For the session of the query.
CONFIGURATION = {
    "spark.databricks.delta.optimize.minFileSize": str(FILE_SIZE),
    "spark.databricks.delta.optimize.maxFileSize": str(4 * FILE_SIZE),
    # VACUUM would list a folder in as many tasks, by default 10,000.
    "spark.sql.sources.parallelPartitionDiscovery.parallelism": "4",
}

log = structlog.get_logger()


class Maintenance:
    """What the silver query does for its tables, now and then, before and after a batch."""

    def __init__(self, settings: LakeSettings, topics: TopicFile, checkpoint: Checkpoint) -> None:
        self._settings = settings
        self._tables = silver_tables(topics)
        self._forgetful = [topic for topic in topics.changelogs() if topic.tombstones_days]
        self._daily = Daily(checkpoint)
        self._begun_before = checkpoint.unfinished

    def before(self, spark: SparkSession, batch_id: int) -> None:
        """Once a day, collect old tombstones.

        Not after the batch: if it is run again, it must find what it has found. Nor before one that
        an earlier process has begun, for the same reason.
        """
        if self._forgetful and self._daily.is_due() and batch_id != self._begun_before:
            for topic in self._forgetful:
                collect_tombstones(spark, self._settings, topic, dt.datetime.now(dt.timezone.utc))

    def after(self, spark: SparkSession, batch_id: int) -> None:
        """Compact what has many small files; once a day, delete old records and old versions."""
        if batch_id % EVERY_BATCHES == 0:
            for table in self._tables:
                self._compact(spark, table)
        if self._daily.is_due():
            for table in self._tables:
                self._cluster(spark, table)
            drop_old_batches(self._settings, dt.datetime.now(dt.timezone.utc))
            for table in self._tables:
                table.open(spark, self._settings).vacuum(self._settings.history_days * 24)
            self._daily.done()

    def _cluster(self, spark: SparkSession, table: TableSpec) -> None:
        """Sort the rows anew by their key, if each value of it may be in many files by now.

        What changes lies in files of its own, which span all keys.
        """
        if not table.clustered_by:
            return
        overlap = DirectTable(table, self._settings).overlap(table.clustered_by[0])
        if overlap >= MANY_OVERLAPPING_FILES:
            begun = time.monotonic()
            table.open(spark, self._settings).optimize().executeZOrderBy(*table.clustered_by)
            took = round(time.monotonic() - begun, 1)
            log.info("clustered", table=table.full_name, overlap=round(overlap, 1), seconds=took)

    def _compact(self, spark: SparkSession, table: TableSpec) -> None:
        """By delta-rs if it can, in a tenth of the time, as the next batch waits."""
        direct = DirectTable(table, self._settings)
        has_vectors = direct.configuration(DELETION_VECTORS) == "true"
        by_spark = partial(self._compact_by_spark, spark, table) if has_vectors else None
        compact(direct, table.full_name, by_spark)

    def _compact_by_spark(self, spark: SparkSession, table: TableSpec) -> None:
        table.open(spark, self._settings).optimize().executeCompaction()
