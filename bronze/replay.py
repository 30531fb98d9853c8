"""`lakehouse replay`: bring messages back into a bronze table that the broker still has.

For a table that lost rows, by a restored backup or a `RESTORE`: what the topic holds between two
instants, and the table does not, is appended. Exactly once: by position, in one commit, with the
stream's checkpoint claimed, and never beyond what the stream has committed, which it lands itself.
"""

import json

from pyspark.sql import SparkSession

from bronze.admin import PulsarAdmin
from bronze.checkpoint import claim_tables
from bronze.declarations import Topic
from bronze.envelope import POSITION_FIELDS
from bronze.eras import Partitioning, partitionings, with_partitionings
from bronze.errors import SettingsError
from bronze.offsets import OffsetJson, from_json
from bronze.progress import committed_offset
from bronze.settings import LakeSettings
from bronze.source import PulsarDataSource
from bronze.tables import bronze_table

POSITION = ("topic", *POSITION_FIELDS)


def replay_topic(
    spark: SparkSession,
    settings: LakeSettings,
    topic: Topic,
    begin: int,
    end: int | None = None,
) -> int:
    """Append what is missing of the messages published from `begin` on and before `end`.

    Both are epoch milliseconds.

    Returns:
        How many there were.

    Raises:
        CheckpointError: the topic is being landed by another process.
        SettingsError: nothing of it was landed yet.
    """
    name = f"bronze.{topic.name}"
    table = bronze_table(topic.name)
    landed = committed_offset(settings, topic.name)
    if not landed:
        message = f"Nothing of {topic.name} was landed yet, so nothing can be replayed; run bronze."
        raise SettingsError(message)
    checkpoint = claim_tables(spark, settings, name, [table])
    try:
        spark.dataSource.register(PulsarDataSource)
        found = (
            spark.read.format("pulsar")
            .options(**settings.connection.options())
            .option("topic", settings.full_topic(topic.name))
            .option("startingTimestamp", str(begin))
            .option("endingPosition", json.dumps(_end(settings, landed, end)))
            .option("readCompacted", str(topic.compacted).lower())
            .load()
        )
        path = table.path(settings)
        there = spark.read.format("delta").load(path).select(*POSITION)
        missing = found.join(there, [*POSITION], "left_anti").select(*found.columns).persist()
        count = missing.count()
        if count:
            missing.write.format("delta").mode("append").save(path)
        missing.unpersist()
        return count
    finally:
        checkpoint.release()


def _end(settings: LakeSettings, landed: OffsetJson, end: int | None) -> OffsetJson:
    """Where to end, and what has ordered the messages that were landed up to there."""
    positions, known = from_json(landed), partitionings(landed)
    if not known:  # an older version has landed them, without order times
        topics = {name.rpartition("-partition-")[0] for name in positions} - {""}
        known = {name: Partitioning(len(positions)) for name in topics}
    if end is not None:
        with PulsarAdmin(settings.connection) as admin:
            positions = {n: min(p, admin.position_at(n, end)) for n, p in positions.items()}
    return with_partitionings(positions, known)
