"""Main path of bronze: one streaming query per topic, from the Pulsar source into a Delta table.

Guarantee: each message lands exactly once, because Spark tracks both the offsets and the table's
transaction ids. Parallelism: one query per topic, one task per topic partition. Output:
`bronze.<topic>`.
"""

import datetime as dt
import json
from functools import partial

from pyspark.sql import SparkSession

from bronze.expiry import expire_messages
from bronze.landing import Landing
from bronze.start import starting_position
from lake.observe.lineage import Flow, table_place, topic_places
from lake.settings.settings import LakeSettings
from lake.streams.checkpoint import (
    Running,
    claim_tables,
    newest_batch,
    planned_offsets,
    start_query,
)
from lake.streams.supervisor import Stream
from lake.tables.lake import Lake
from lake.tables.spec import bronze_table
from lake.tables.storage import storage_options
from lake.topics.topic import Topic
from pulsar_spark.eras import partitionings
from pulsar_spark.errors import CheckpointError
from pulsar_spark.offsets import from_json, topic_of
from pulsar_spark.read import incomplete
from pulsar_spark.source import PulsarDataSource


def ingest(spark: SparkSession, lake: Lake, *, available_now: bool = False) -> list[Stream]:
    """Start landing all topics. With `available_now`, the queries end when they have caught up.

    A topic that cannot be landed does not stop the others; its stream raises the error in `keep`.
    """
    return [
        Stream(
            query_name(topic.name),
            lake.settings,
            partial(ingest_topic, spark, lake, topic, available_now=available_now),
            available_now=available_now,
            flow=_flow(lake, topic),
        ).begin()
        for topic in lake.topics.topics.values()
    ]


def _flow(lake: Lake, topic: Topic) -> Flow:
    table = table_place(lake.settings, lake.table(bronze_table(topic.name)))
    return Flow(topic_places(lake, topic), (table,))


def query_name(topic: str) -> str:
    """The name of the query that lands a topic."""
    return f"bronze.{topic}"


def ingest_topic(spark: SparkSession, lake: Lake, topic: Topic, *, available_now: bool) -> Running:
    """Start landing one topic in `bronze.<topic>`.

    Raises:
        BrokerError: the topic has a declared start, and the broker does not answer.
        CheckpointError: the checkpoint and the table do not belong together, or are in use, or the
            topic has another address than the one that was landed.
        SettingsError: the declared start has not come yet.
    """
    name = query_name(topic.name)
    refuse_other_address(lake, topic.name)
    table = bronze_table(topic.name)
    settings = lake.settings
    checkpoint = claim_tables(spark, lake, name, [table])
    try:
        # Upkeep follows a batch, and the topic may not have new messages any more.
        expire_messages(lake, topic, dt.datetime.now(dt.timezone.utc))
        start = starting_position(lake, topic, checkpoint)
    except BaseException:
        checkpoint.release()
        raise
    # Register again for each query: planning modifies the registered object, and a query that is
    # serialized at that moment fails with java.io.OptionalDataException.
    spark.dataSource.register(PulsarDataSource)
    messages = (
        spark.readStream.format("pulsar")
        .options(**settings.connection.options())
        .options(**lake.address(topic.name).options)
        .option("subscription", subscription(checkpoint.reader))
        .option("readCompacted", str(topic.compacted).lower())
        .option("startingPosition", start)
        .options(**_limits(lake))
        .load()
    )
    landing = Landing(lake, lake.table(table), checkpoint)
    trigger = settings.trigger
    return start_query(messages, landing.land, trigger, checkpoint, available_now=available_now)


def refuse_other_address(lake: Lake, topic: str) -> None:
    """Check that a declaration still holds all topics on the broker whose messages have landed.

    Called before anything reads the topic. Its table holds positions of the former topic, which do
    not order the messages of another one. Names of partitions in the checkpoint show which one it
    was; a topic of which nothing was read yet may be exchanged, and others may be added.

    Raises:
        CheckpointError: it does not hold one of them, or another pattern matches one as well.
    """
    address = lake.address(topic)
    landed = landed_topics(lake.settings, topic)
    for other in lake.topics.topics if address.pattern else ():
        both = sorted(name for name in landed if lake.address(other).holds(name))
        if both and other != topic:
            message = (
                f"The topics {topic} and {other} both read {both[0]}, so each of its messages is "
                "in two tables. Change one of their patterns, so that only one of them matches it."
            )
            raise CheckpointError(message)
    if others := sorted(name for name in landed if not address.holds(name)):
        message = (
            f"The topic {topic} is declared as {address}, but bronze.{topic} holds messages of "
            f"{others[0]}, and positions do not order the messages of two topics. Name the former "
            "address again (the key 'topic' or 'pattern' in the topic file, or the setting "
            "pulsar_namespace), or declare the new topic under another name."
        )
        raise CheckpointError(message)


def landed_topics(settings: LakeSettings, topic: str) -> set[str]:
    """The full names of the topics on the broker from which a declared topic has been read."""
    query = query_name(topic)
    batch = newest_batch(settings, query)
    stored = {} if batch is None else planned_offsets(settings, query, batch).get("0", {})
    return {*map(topic_of, from_json(stored)), *partitionings(stored)}


def _limits(lake: Lake) -> dict[str, str]:
    settings, found = lake.settings, {}
    if settings.max_messages_per_trigger:
        found["maxMessagesPerTrigger"] = str(settings.max_messages_per_trigger)
    if settings.max_bytes_per_trigger:
        found["maxBytesPerTrigger"] = str(settings.max_bytes_per_trigger)
    if settings.accept_data_loss:
        found["failOnDataLoss"] = "false"
        found["dataLossTable"] = lake.named("bronze", "data_loss").path
    found["incompleteTable"] = lake.named("bronze", incomplete.NAME).path
    if storage := storage_options(settings):
        found["dataLossStorageOptions"] = json.dumps(storage)
    return found


def subscription(reader: str) -> str:
    """Name of the durable subscription that keeps unread messages for a query, by its reader id."""
    return f"lakehouse-{reader}"
