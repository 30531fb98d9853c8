"""`lakehouse publish-table`: send the changes of a Delta table as a keyed changelog topic.

One streaming query reads the existing rows of the table and then its change data feed. It sends
each change as JSON with the columns and the kind of change in `op`: c(reated), u(pdated) or
d(eleted). A consumer that applies all changes has the rows of the table. For a state table of
silver, it has the rows of the view, without deleted keys. The marks of truncations and of collected
tombstones are not sent. A truncation deletes rows in the same commit, and each of them is sent as a
delete of its key.

Order: changes of a key stay in order, because one task sends them to one topic partition. Delivery:
exactly once if message deduplication is on in the namespace, else at least once. See
`pulsar_spark/sink.py`.
"""

import re
from collections.abc import Sequence

import structlog
from deltalake.exceptions import TableNotFoundError
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from lake.settings.settings import LakeSettings
from lake.streams.checkpoint import BatchSpan, Running, claim, start_query
from lake.streams.supervisor import Stream
from lake.tables.lake import Lake
from lake.tables.table import Table
from pulsar_spark.broker.admin import PulsarAdmin, namespace_of
from pulsar_spark.errors import SettingsError
from pulsar_spark.source import PulsarDataSource

FEED = "delta.enableChangeDataFeed"
NAME = re.compile(r"([A-Za-z]\w*)\.([A-Za-z]\w*)")
DELETED = "is_deleted"  # marks a tombstone in silver's state tables
MARK = "mark"  # set in rows of silver's state tables that concern no single key
OF_SILVER = {DELETED, MARK, "position"}  # columns of state tables; topics have no such fields
NULL = "\\N"  # how a message key contains NULL
OURS = (
    *(DELETED, "silver_batch", "arrived_batch"),
    *("_change_type", "_commit_version", "_commit_timestamp"),
)
# Constant, because a replayed batch must give each task the same rows.
TASKS = 4
INSTANT = "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX"

log = structlog.get_logger()


def publish_table(
    spark: SparkSession,
    lake: Lake,
    table: str,
    topic: str,
    *,
    key: Sequence[str],
    op: str = "op",
    partitions: int = 1,
    available_now: bool = False,
) -> Stream:
    """Start a stream that sends the changes of a table to a topic.

    Args:
        spark: the session.
        lake: the lake and the broker.
        table: `<layer>.<name>`. Its change data feed must be on.
        topic: short name in our namespace, or `persistent://tenant/namespace/topic`. If it does not
            exist, it is created with unlimited retention.
        key: columns that identify a row. The message key is their values joined by `|`, with `\\N`
            for NULL.
        op: name of the field for the kind of change.
        partitions: number of partitions if the topic is created.
        available_now: whether to end once all present changes are sent.

    Raises:
        SettingsError: the table does not exist, has no change data feed, lacks a key column, or has
            a column with the name of `op`.
    """
    source = _table_with_feed(lake, table)
    full_topic = topic if "://" in topic else lake.settings.full_topic(topic)
    _prepare_topic(lake.settings, full_topic, partitions)
    name = f"publish.{table}.{full_topic.rpartition('/')[2]}"
    changes = spark.readStream.format("delta").option("readChangeFeed", "true").load(source.path)
    _check_columns(_columns(changes), key, op)

    def start() -> Running:
        checkpoint = claim(lake.settings, name)

        def send(batch: DataFrame, span: BatchSpan) -> None:
            batch.sparkSession.dataSource.register(PulsarDataSource)
            (
                as_messages(batch, key, op)
                .write.format("pulsar")
                .options(**lake.settings.connection.options())
                .option("topic", full_topic)
                .option("producerName", f"lakehouse-{checkpoint.id}")
                .option("batchId", str(span.id))
                .mode("append")
                .save()
            )

        # With foreachBatch, because a stream cannot be sorted.
        trigger = lake.settings.trigger
        return start_query(changes, send, trigger, checkpoint, available_now=available_now)

    return Stream(name, lake.settings, start, available_now=available_now).begin()


def as_messages(changes: DataFrame, key: Sequence[str], op: str) -> DataFrame:
    """Rows of a change data feed as rows for `format("pulsar")`, in order for each key."""
    content = F.struct(_operation(changes).alias(op), *_columns(changes))
    options = {"ignoreNullFields": "false", "timestampFormat": INSTANT}
    texts = [F.coalesce(F.col(name).cast("string"), F.lit(NULL)) for name in key]
    return (
        _of_rows(changes)
        .where("_change_type != 'update_preimage'")
        .repartition(TASKS, *key)
        # 'delete' comes before 'insert' of the same key and commit.
        .sortWithinPartitions("_commit_version", *key, "_change_type")
        .select(
            F.concat_ws("|", *texts).alias("key"),
            F.to_json(content, options).alias("payload"),
            F.col("_commit_timestamp").alias("event_time"),
        )
    )


def _of_rows(changes: DataFrame) -> DataFrame:
    """The changes of keys, without changes of marks and without collected tombstones."""
    if MARK in _columns(changes) or MARK not in changes.columns:
        return changes
    return changes.where(f"{MARK} IS NULL AND NOT ({DELETED} AND _change_type = 'delete')")


def _columns(changes: DataFrame) -> list[str]:
    ours = {*OURS, MARK} if {*changes.columns} >= OF_SILVER else {*OURS}
    return [name for name in changes.columns if name not in ours]


def _check_columns(columns: Sequence[str], key: Sequence[str], op: str) -> None:
    for name in key:
        if name not in columns:
            message = (
                f"The table has no column '{name}' for the key. Its columns are "
                f"{', '.join(columns)}."
            )
            raise SettingsError(message)
    if op in columns:
        message = (
            f"The table already has a column '{op}'. Choose another name for the field of changes "
            "with --op."
        )
        raise SettingsError(message)


def _operation(changes: DataFrame) -> Column:
    kind = F.col("_change_type")
    deleted = kind == "delete"
    if DELETED in changes.columns:
        deleted = deleted | F.col(DELETED)
    return F.when(deleted, "d").when(kind == "insert", "c").otherwise("u")


def _table_with_feed(lake: Lake, name: str) -> Table:
    match = NAME.fullmatch(name)
    if match is None:
        message = (
            f"'{name}' is not a table name. Write <layer>.<table>, such as silver.users_state."
        )
        raise SettingsError(message)
    table = lake.named(*match.groups())
    try:
        properties = table.log().metadata().configuration
    except TableNotFoundError as error:
        message = f"The table {name} does not exist at {table.path}."
        raise SettingsError(message) from error
    if properties.get(FEED) != "true":
        message = (
            f'The table {name} has no change data feed. Turn it on: lakehouse sql "ALTER TABLE '
            f'{name} SET TBLPROPERTIES ({FEED} = true)". The existing rows are then sent first, '
            "followed by all later changes."
        )
        raise SettingsError(message)
    return table


def _prepare_topic(settings: LakeSettings, topic: str, partitions: int) -> None:
    with PulsarAdmin(settings.connection) as admin:
        if admin.ensure_topic(topic, partitions):
            admin.retain_for_ever(topic)
        namespace = namespace_of(topic)
        if not admin.deduplicates(namespace):
            log.warning(
                "message deduplication is off, so a batch that is replayed after a crash is sent "
                "twice; turn it on with `pulsar-admin namespaces set-deduplication -e`",
                namespace=namespace,
            )
