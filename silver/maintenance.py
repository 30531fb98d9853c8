"""Small files and old versions of silver's tables, kept in check by the job that writes them
(invariant 5): between two batches, so nothing else writes at that time.
"""

import datetime as dt
from functools import partial

from pyspark.sql import SparkSession

from bronze.checkpoint import Checkpoint
from bronze.direct import DirectTable
from bronze.settings import LakeSettings
from bronze.tables import TableSpec
from bronze.topics import TopicFile
from bronze.upkeep import FILE_SIZE, Daily, compact
from silver.tables import DELETION_VECTORS, silver_tables
from silver.tombstones import collect_tombstones

EVERY_BATCHES = 50
# For the session of the query.
CONFIGURATION = {
    "spark.databricks.delta.optimize.minFileSize": str(FILE_SIZE),
    "spark.databricks.delta.optimize.maxFileSize": str(4 * FILE_SIZE),
    # VACUUM would list a folder in as many tasks, by default 10,000.
    "spark.sql.sources.parallelPartitionDiscovery.parallelism": "4",
}


class Maintenance:
    """What the silver query does for its tables, now and then, when a batch is done."""

    def __init__(self, settings: LakeSettings, topics: TopicFile, checkpoint: Checkpoint) -> None:
        self._settings = settings
        self._tables = silver_tables(topics)
        self._forgetful = [topic for topic in topics.changelogs() if topic.tombstones_days]
        self._daily = Daily(checkpoint)

    def run(self, spark: SparkSession, batch_id: int) -> None:
        """Compact what has many small files; once a day, forget what is old."""
        if batch_id % EVERY_BATCHES == 0:
            for table in self._tables:
                self._compact(spark, table)
        if self._daily.is_due():
            for topic in self._forgetful:
                collect_tombstones(spark, self._settings, topic, dt.datetime.now(dt.timezone.utc))
            for table in self._tables:
                table.open(spark, self._settings).vacuum(self._settings.history_days * 24)
            self._daily.done()

    def _compact(self, spark: SparkSession, table: TableSpec) -> None:
        """By delta-rs if it can, in a tenth of the time, as the next batch waits."""
        direct = DirectTable(table, self._settings)
        has_vectors = direct.configuration(DELETION_VECTORS) == "true"
        by_spark = partial(self._compact_by_spark, spark, table) if has_vectors else None
        compact(direct, table.full_name, by_spark)

    def _compact_by_spark(self, spark: SparkSession, table: TableSpec) -> None:
        table.open(spark, self._settings).optimize().executeCompaction()
