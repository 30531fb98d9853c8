"""The envelope: the columns of every bronze table and of the Pulsar source.

It is separate from the other table contracts because every Python worker imports it.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Column:
    """A column: its name, SQL type and meaning, and whether it may be NULL."""

    name: str
    type: str
    comment: str
    nullable: bool = True


ENVELOPE = (
    Column("topic", "string", "Full topic name without the partition", nullable=False),
    Column("partition", "int", "Partition number, -1 if it has none", nullable=False),
    Column("ledger", "bigint", "Position: ledger id", nullable=False),
    Column("entry", "bigint", "Position: entry id within the ledger", nullable=False),
    Column("batch_index", "int", "Position: index within a batched entry, else 0", nullable=False),
    Column("key", "string", "Message key, NULL if it has none"),
    Column("payload", "binary", "Value, byte for byte; NULL for a null value"),
    Column("event_time", "timestamp", "Event time set by the producer, NULL if none"),
    Column("publish_time", "timestamp", "When the producer published it", nullable=False),
    Column(
        "order_time",
        "timestamp",
        "Orders messages of different partitions, and is compared before the position; NULL, which "
        "sorts first, until the number of partitions changes",
    ),
    Column("properties", "map<string,string>", "Message properties"),
    Column(
        "schema_version",
        "bigint",
        "Schema version of the topic, NULL if none",
    ),
    Column("raw_key", "binary", "Bytes of a key that is not UTF-8; the column key is then NULL"),
    Column(
        "raw_properties",
        "array<struct<name:binary,value:binary>>",
        "All properties byte for byte, if any name or value is not UTF-8",
    ),
    Column(
        "undecoded",
        "string",
        "Metadata that could not be decoded: key, properties, or a time with its value; else NULL",
    ),
)
# Columns for metadata that cannot be decoded.
RAW = ("raw_key", "raw_properties", "undecoded")

# Together these fields identify a message of a topic.
POSITION_FIELDS = ("ledger", "entry", "batch_index", "partition")
# Messages of a topic are ordered by these fields, one after the other. A later message has the
# greater value; NULL comes first.
ORDER_FIELDS = ("order_time", *POSITION_FIELDS)
_TYPES = {column.name: column.type for column in ENVELOPE}
# The SQL type of a position as one value.
POSITION = f"struct<{','.join(f'{name}:{_TYPES[name]}' for name in ORDER_FIELDS)}>"

# Tables of older versions lack these: bronze's tables as columns, silver's as fields of `position`.
ADDED = frozenset({"order_time", *RAW})

# As text, because the Pulsar source reports its schema in a process without a Spark session.
ENVELOPE_DDL = ", ".join(f"{column.name} {column.type}" for column in ENVELOPE)
