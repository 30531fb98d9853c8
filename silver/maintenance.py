"""Small files and old versions of silver's tables, kept in check by the job that writes them
(invariant 5): between two batches, so nothing else writes at that time.
"""

import datetime as dt
import time
from pathlib import Path

import structlog
from pyspark.sql import SparkSession

from bronze.checkpoint import Checkpoint
from bronze.direct import DirectTable
from bronze.settings import LakeSettings
from bronze.tables import TableSpec
from bronze.topics import TopicFile
from silver.tables import DELETION_VECTORS, silver_tables
from silver.tombstones import collect_tombstones

EVERY_BATCHES = 50
FILE_SIZE = 32 << 20  # a smaller file is written anew, so a row is copied a few times in its life
MANY_SMALL_FILES = 32
DAY = 24 * 3600.0
# For the session of the query.
CONFIGURATION = {
    "spark.databricks.delta.optimize.minFileSize": str(FILE_SIZE),
    "spark.databricks.delta.optimize.maxFileSize": str(4 * FILE_SIZE),
    # VACUUM would list a folder in as many tasks, by default 10,000.
    "spark.sql.sources.parallelPartitionDiscovery.parallelism": "4",
}

log = structlog.get_logger()


class Maintenance:
    """What the silver query does for its tables, now and then, when a batch is done."""

    def __init__(self, settings: LakeSettings, topics: TopicFile, checkpoint: Checkpoint) -> None:
        self._settings = settings
        self._tables = silver_tables(topics)
        self._forgetful = [topic for topic in topics.changelogs() if topic.tombstones_days]
        self._vacuumed = Path(checkpoint.path) / "lakehouse.vacuumed"

    def run(self, spark: SparkSession, batch_id: int) -> None:
        """Compact what has many small files; once a day, forget what is old."""
        if batch_id % EVERY_BATCHES == 0:
            for table in self._tables:
                self._compact(spark, table)
        if self._is_due():
            for topic in self._forgetful:
                collect_tombstones(spark, self._settings, topic, dt.datetime.now(dt.timezone.utc))
            for table in self._tables:
                table.open(spark, self._settings).vacuum(self._settings.history_days * 24)
            self._vacuumed.touch()

    def _compact(self, spark: SparkSession, table: TableSpec) -> None:
        direct = DirectTable(table, self._settings)
        small = direct.files_below(FILE_SIZE)
        if small < MANY_SMALL_FILES:
            return
        begun = time.monotonic()
        if direct.property(DELETION_VECTORS) == "true":
            table.open(spark, self._settings).optimize().executeCompaction()
        else:  # in a tenth of the time, which the next batch waits for
            direct.compact(FILE_SIZE)
        took = round(time.monotonic() - begun, 1)
        log.info("compacted", table=table.full_name, small_files=small, seconds=took)

    def _is_due(self) -> bool:
        if not self._vacuumed.exists():
            self._vacuumed.touch()  # a new lake has nothing old
        return time.time() - self._vacuumed.stat().st_mtime > DAY
