"""`lakehouse replay`: restores messages in a bronze table that the broker still has.

For a table that lost rows because of a restored backup or a `RESTORE`. Appends the messages that
the topic holds between two instants and that the table lacks, except those that are older than the
topic's `keep`. Each message is appended exactly once: messages are compared by position and
appended in one commit, while the stream's checkpoint is claimed. A replay never goes beyond the
stream's last commit, because the stream lands the rest.
"""

import datetime as dt
import json

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from bronze.ingest import refuse_other_address
from bronze.lag import committed_offset
from lake.settings.settings import LakeSettings
from lake.streams.checkpoint import claim_tables
from lake.tables.lake import Lake
from lake.tables.spec import bronze_table
from lake.topics.topic import Topic
from pulsar_spark.broker.admin import PulsarAdmin
from pulsar_spark.eras import Partitioning, partitionings, with_partitionings
from pulsar_spark.errors import SettingsError
from pulsar_spark.offsets import OffsetJson, from_json
from pulsar_spark.schema import POSITION_FIELDS
from pulsar_spark.source import PulsarDataSource

POSITION = ("topic", *POSITION_FIELDS)


def replay_topic(
    spark: SparkSession,
    lake: Lake,
    topic: Topic,
    begin: int,
    end: int | None = None,
) -> int:
    """Append the missing messages that were published at `begin` or later and before `end`.

    Args:
        spark: the session.
        lake: the lake.
        topic: the topic to replay.
        begin: epoch milliseconds.
        end: epoch milliseconds; by default, the stream's last commit is the end.

    Returns:
        The number of messages appended.

    Raises:
        CheckpointError: another process is landing the topic, or another topic has landed.
        SettingsError: no message of the topic has landed yet.
    """
    name = f"bronze.{topic.name}"
    settings, spec = lake.settings, bronze_table(topic.name)
    table = lake.table(spec)
    refuse_other_address(lake, topic.name)
    landed = committed_offset(settings, topic.name)
    if not landed:
        message = (
            f"No message of {topic.name} has landed, so there is nothing to replay. Run "
            "`lakehouse bronze`."
        )
        raise SettingsError(message)
    checkpoint = claim_tables(spark, lake, name, [spec])
    try:
        spark.dataSource.register(PulsarDataSource)
        found = (
            spark.read.format("pulsar")
            .options(**settings.connection.options())
            .options(**lake.address(topic.name).options)
            .option("startingTimestamp", str(begin))
            .option("endingPosition", json.dumps(_end(settings, landed, end)))
            .option("readCompacted", str(topic.compacted).lower())
            .load()
        )
        there = table.rows(spark).select(*POSITION)
        since = topic.kept_since(dt.datetime.now(dt.timezone.utc))
        if since is not None:
            found = found.where(F.col("publish_time") >= F.lit(since))
        missing = found.join(there, [*POSITION], "left_anti").select(*found.columns).persist()
        count = missing.count()
        if count:
            missing.write.format("delta").mode("append").save(table.path)
        missing.unpersist()
        return count
    finally:
        checkpoint.release()


def _end(settings: LakeSettings, landed: OffsetJson, end: int | None) -> OffsetJson:
    """The offset at which the replay ends, with the eras that ordered the landed messages."""
    positions, known = from_json(landed), partitionings(landed)
    if not known:  # landed by an older version, without order times
        topics = {name.rpartition("-partition-")[0] for name in positions} - {""}
        known = {name: Partitioning(len(positions)) for name in topics}
    if end is not None:
        with PulsarAdmin(settings.connection) as admin:
            positions = {n: min(p, admin.position_at(n, end)) for n, p in positions.items()}
    return with_partitionings(positions, known)
