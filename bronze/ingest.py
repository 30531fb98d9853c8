"""Main path of bronze: one streaming query per topic, from the Pulsar source into a Delta table.

Guarantee: each message lands exactly once, because Spark tracks both the offsets and the table's
transaction ids. Parallelism: one query per topic, one task per topic partition. Output:
`bronze.<topic>`.
"""

import json
from functools import partial

from pyspark.sql import SparkSession

from bronze.landing import Landing
from lake.observe.lineage import Flow, table_place, topic_place
from lake.streams.checkpoint import Running, claim_tables, start_query
from lake.streams.supervisor import Stream
from lake.tables.lake import Lake
from lake.tables.spec import bronze_table
from lake.tables.storage import storage_options
from lake.topics.topic import Topic
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
    return Flow((topic_place(lake.settings, topic),), (table,))


def query_name(topic: str) -> str:
    """The name of the query that lands a topic."""
    return f"bronze.{topic}"


def ingest_topic(spark: SparkSession, lake: Lake, topic: Topic, *, available_now: bool) -> Running:
    """Start landing one topic in `bronze.<topic>`.

    Raises:
        CheckpointError: the checkpoint and the table do not belong together, or are in use.
    """
    name = query_name(topic.name)
    table = bronze_table(topic.name)
    settings = lake.settings
    checkpoint = claim_tables(spark, lake, name, [table])
    # Register again for each query: planning modifies the registered object, and a query that is
    # serialized at that moment fails with java.io.OptionalDataException.
    spark.dataSource.register(PulsarDataSource)
    messages = (
        spark.readStream.format("pulsar")
        .options(**settings.connection.options())
        .option("topic", settings.full_topic(topic.name))
        .option("subscription", subscription(checkpoint.id))
        .option("readCompacted", str(topic.compacted).lower())
        .options(**_limits(lake))
        .load()
    )
    landing = Landing(lake, lake.table(table), checkpoint)
    trigger = settings.trigger
    return start_query(messages, landing.land, trigger, checkpoint, available_now=available_now)


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


def subscription(checkpoint: str) -> str:
    """Name of the durable subscription that keeps unread messages for a checkpoint's query."""
    return f"lakehouse-{checkpoint}"
