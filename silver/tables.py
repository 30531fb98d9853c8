"""Silver's table contracts, derived from the topic file. This is what gold and BI rely on.

Every row carries `position`, the place of the message it was made from: a total order, compared
field by field. Ledger ids grow over the whole cluster, so the order also holds across partitions
and after partitions were added.
"""

from pyspark.sql import SparkSession

from bronze.envelope import Column
from bronze.tables import TableSpec
from bronze.topics import FieldSpec, Topic, TopicFile, snake_case

POSITION = "struct<ledger:bigint,entry:bigint,batch_index:int,partition:int>"
POSITION_FIELDS = ("ledger", "entry", "batch_index", "partition")

BATCHES = ("arrived_batch", "silver_batch")

QUARANTINE = TableSpec(
    "silver",
    "quarantine",
    "Records that could not be decoded. Grain: one message; never changed",
    (
        Column("topic", "string", "Short name of the topic", nullable=False),
        Column("position", POSITION, "Where the message is", nullable=False),
        Column("reason", "string", "Why it was refused", nullable=False),
        Column("key", "string", "Message key"),
        Column("payload", "binary", "Value, byte for byte"),
        Column("event_time", "timestamp", "Event time set by the producer"),
        Column("publish_time", "timestamp", "When it was published", nullable=False),
        Column("silver_batch", "bigint", "Batch that refused it", nullable=False),
    ),
    {"delta.appendOnly": "true"},
)

RECONCILIATION = TableSpec(
    "silver",
    "reconciliation",
    "The books. Grain: one batch and topic; messages_in = applied + superseded + quarantined",
    (
        Column("silver_batch", "bigint", "Batch of the silver query", nullable=False),
        Column("topic", "string", "Short name of the topic", nullable=False),
        Column("messages_in", "bigint", "Messages read from bronze", nullable=False),
        Column("applied", "bigint", "Messages that made or changed a row", nullable=False),
        Column("superseded", "bigint", "Stale or duplicate: a later one is known", nullable=False),
        Column("quarantined", "bigint", "Messages in silver.quarantine", nullable=False),
        Column("waiting", "bigint", "Of the applied: rows that miss a lookup", nullable=False),
    ),
    {"delta.appendOnly": "true"},
)


SCHEMAS = TableSpec(
    "silver",
    "schemas",
    "Schema versions that messages were published with. Grain: topic and version; never changed",
    (
        Column("topic", "string", "Short name of the topic", nullable=False),
        Column("version", "bigint", "Version, counted by the broker from 0", nullable=False),
        Column("type", "string", "AVRO, JSON or the name of a primitive", nullable=False),
        Column("definition", "string", "The schema; empty for primitives", nullable=False),
    ),
    {"delta.appendOnly": "true"},
)


def sql_type(field: FieldSpec) -> str:
    """The column type of a field."""
    return {"timestamp_ms": "timestamp", "long": "bigint"}.get(field.type, field.type)


def field_columns(topic: Topic) -> list[Column]:
    """The topic's own columns, in the order of its declaration."""
    return [
        Column(snake_case(name), sql_type(spec), f"Field {name} of the message")
        for name, spec in topic.fields.items()
    ]


def state_struct(topic: Topic) -> str:
    """The type of a looked-up row: the topic's columns without bookkeeping."""
    return f"struct<{','.join(f'{c.name}:{c.type}' for c in field_columns(topic))}>"


def state_table(topic: Topic) -> TableSpec:
    """State of a changelog. Grain: one key; a deleted key stays as a tombstone."""
    return TableSpec(
        "silver",
        f"{topic.name}_state",
        f"Latest message per key of {topic.name}, deleted keys included",
        (
            *field_columns(topic),
            Column("is_deleted", "boolean", "A tombstone: the key was deleted", nullable=False),
            Column("position", POSITION, "Message that the row is made from", nullable=False),
            Column("publish_time", "timestamp", "When that was published", nullable=False),
            Column("silver_batch", "bigint", "Batch that last wrote the row", nullable=False),
        ),
        _statistics([*topic.key_columns, "publish_time", "silver_batch"]),
    )


def enriched_table(topic: Topic, topics: TopicFile) -> TableSpec:
    """Events with their lookups. Grain: one key of the topic, exactly once."""
    lookups: list[Column] = []
    for name, lookup in topic.lookups.items():
        row = state_struct(topics.topics[lookup.topic])
        lookups.append(Column(name, row, f"Row of {lookup.topic} as of arrival; NULL if unknown"))
        lookups.append(Column(f"{name}_position", POSITION, f"Version of that {name} row"))
    return TableSpec(
        "silver",
        f"enriched_{topic.name}",
        f"Every record of {topic.name} once, with the rows it refers to",
        (
            *field_columns(topic),
            *lookups,
            Column("missing_lookups", "int", "How many lookups are NULL", nullable=False),
            Column("position", POSITION, "Message that the row is made from", nullable=False),
            Column("publish_time", "timestamp", "When that was published", nullable=False),
            Column("arrived_batch", "bigint", "Batch that brought the message", nullable=False),
            Column("silver_batch", "bigint", "Batch that last wrote the row", nullable=False),
        ),
        _statistics([*topic.key_columns, "missing_lookups", "publish_time", *BATCHES]),
    )


def _statistics(columns: list[str]) -> dict[str, str]:
    """Statistics of the columns that are searched by, as others only cost the writer time.

    By default the first 32 columns have them, and structs count field by field.
    """
    return {"delta.dataSkippingStatsColumns": ",".join(columns)}


def silver_tables(topics: TopicFile) -> list[TableSpec]:
    """All tables the silver query owns."""
    return [
        *(state_table(topic) for topic in topics.changelogs()),
        *(enriched_table(topic, topics) for topic in topics.events()),
        QUARANTINE,
        RECONCILIATION,
        *([SCHEMAS] if any(t.format == "registry" for t in topics.topics.values()) else []),
    ]


def create_views(spark: SparkSession, topics: TopicFile) -> None:
    """Create the views of silver; its tables must be registered in the catalog."""
    for topic in topics.changelogs():
        columns = ", ".join(f"`{c.name}`" for c in field_columns(topic))
        spark.sql(
            f"CREATE OR REPLACE VIEW silver.`{topic.name}` AS SELECT {columns}, position "  # noqa: S608 - topics.py checks names
            f"FROM silver.`{topic.name}_state` WHERE NOT is_deleted"
        )
    for topic in topics.events():
        for name in topic.lookups:
            spark.sql(
                f"CREATE OR REPLACE VIEW silver.`missing_{name}` AS SELECT * "  # noqa: S608 - topics.py checks names
                f"FROM silver.`enriched_{topic.name}` WHERE `{name}` IS NULL"
            )
