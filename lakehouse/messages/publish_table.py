"""Sends the changes of a Delta table to a topic, as a changelog with a message per changed key.

One streaming query reads the existing rows of the table and then its change data feed. Both
`lakehouse publish-table` and the sinks of a topic file run it. A consumer that applies all messages
has the rows of the table that meet the condition of the sink. For a state table of silver, these
are the rows of the view, without deleted keys and without marks. A row that begins to meet the
condition is sent as new, and one that no longer meets it as deleted. Versions of a table that only
move rows between files send nothing.

Order: changes of a key stay in order, because one task sends them to one topic partition. Delivery:
exactly once if message deduplication is on for the topic, else at least once. See
`pulsar_spark/sink.py`. A topic that is created here has it on.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from operator import and_

import structlog
from deltalake.exceptions import TableNotFoundError
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import BooleanType

from lake.quoting import identifier
from lake.settings.settings import LakeSettings
from lake.streams.checkpoint import BatchSpan, Checkpoint, Running, claim, start_query
from lake.streams.failures import explain
from lake.streams.supervisor import Stream
from lake.tables.lake import Lake
from lake.tables.spec import CHANGE_FEED
from lake.tables.table import Table
from pulsar_spark.broker.admin import PulsarAdmin, namespace_of
from pulsar_spark.errors import SettingsError
from pulsar_spark.source import PulsarDataSource
from silver.contract.visible import hiding_columns, shown_columns

NAME = re.compile(r"([A-Za-z]\w*)\.([A-Za-z]\w*)")
NULL = "\\N"  # how a message key contains NULL
OF_FEEDS = ("_change_type", "_commit_version", "_commit_timestamp")
# Constant, because a replayed batch must give each task the same rows.
TASKS = 4
INSTANT = "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX"
TO_JSON = {"ignoreNullFields": "false", "timestampFormat": INSTANT}

log = structlog.get_logger()


@dataclass(frozen=True)
class Form:
    """Which rows of a table to send, and how.

    key: columns that identify a row. The message key is their values joined by `|`, with `\\N` for
        NULL.
    where: a condition in Spark's SQL; None to send all rows.
    columns: the columns to send; None for all but silver's own.
    op: name of the field for the kind of change, c(reated), u(pdated) or d(eleted). A delete has
        only the key besides. None for no such field; a delete is then a message without payload.
    event_time: the column with the event time; None for the time of the change.
    properties: for each property, the column with its value. NULL is no property.
    sink: the name of the sink, for errors; empty for `lakehouse publish-table`.
    """

    key: Sequence[str]
    where: str | None = None
    columns: Sequence[str] | None = None
    op: str | None = "op"
    event_time: str | None = None
    properties: Mapping[str, str] = field(default_factory=dict)
    sink: str = ""


def publish_table(
    spark: SparkSession,
    lake: Lake,
    table: str,
    topic: str,
    form: Form,
    *,
    partitions: int = 1,
    available_now: bool = False,
) -> Stream:
    """Start a stream that sends the changes of a table to a topic.

    Args:
        spark: the session.
        lake: the lake and the broker.
        table: `<layer>.<name>`. Its change data feed must be on.
        topic: short name in our namespace, or `persistent://tenant/namespace/topic`. If it does not
            exist, it is created with unlimited retention and deduplication.
        form: which rows to send, and how.
        partitions: number of partitions if the topic is created.
        available_now: whether to end once all present changes are sent.

    Raises:
        SettingsError: the table does not exist, has no change data feed, or does not fit the form.
    """
    source = _named(lake, table)
    full_topic = topic if "://" in topic else lake.settings.full_topic(topic)
    changes = changes_of(spark, source, form)
    prepare_topic(lake.settings, full_topic, partitions)
    name = f"publish.{table}.{full_topic.rpartition('/')[2]}"

    def start() -> Running:
        checkpoint = claim(lake.settings, name)
        return send(lake.settings, changes, full_topic, form, checkpoint, available_now)

    return Stream(name, lake.settings, start, available_now=available_now).begin()


def changes_of(spark: SparkSession, table: Table, form: Form) -> DataFrame:
    """The stream of a table's change feed, after a check that it fits what is to be sent.

    Raises:
        SettingsError: the table does not exist, has no change data feed, or does not fit the form.
    """
    try:
        properties = table.log().metadata().configuration
    except TableNotFoundError as error:
        message = f"The table {table.full_name} does not exist at {table.path}."
        raise SettingsError(message) from error
    [feed] = CHANGE_FEED
    if properties.get(feed) != CHANGE_FEED[feed]:
        message = (
            f"The table {table.full_name} has no change data feed. Turn it on: lakehouse sql "
            f'"ALTER TABLE {table.full_name} SET TBLPROPERTIES ({feed} = true)". The existing rows '
            "are then sent first, followed by all later changes."
        )
        raise SettingsError(message)
    changes = spark.readStream.format("delta").option("readChangeFeed", "true").load(table.path)
    _check(changes, table.full_name, form)
    return changes


def send(
    settings: LakeSettings,
    changes: DataFrame,
    topic: str,
    form: Form,
    checkpoint: Checkpoint,
    available_now: bool,
) -> Running:
    """Start the query that sends a stream of changes to a topic, on its claimed checkpoint."""

    def send_batch(batch: DataFrame, span: BatchSpan) -> None:
        batch.sparkSession.dataSource.register(PulsarDataSource)
        (
            as_messages(batch, form)
            .write.format("pulsar")
            .options(**settings.connection.options())
            .option("topic", topic)
            .option("producerName", f"lakehouse-{checkpoint.id}")
            .option("batchId", str(span.id))
            .mode("append")
            .save()
        )

    # With foreachBatch, because a stream cannot be sorted.
    trigger = settings.trigger
    return start_query(changes, send_batch, trigger, checkpoint, available_now=available_now)


def as_messages(changes: DataFrame, form: Form) -> DataFrame:
    """Rows of a change data feed as rows for `format("pulsar")`, in order for each key.

    Of each key and version of the table, the rows before and after the version are compared, as far
    as they meet the condition.
    """
    columns = _sent(changes, form)
    extra = {*form.properties.values(), *([form.event_time] if form.event_time else [])}
    row = F.struct(*map(_column, [*columns, *sorted(extra - {*columns})]))
    is_old = F.col("_change_type").isin("delete", "update_preimage")
    key = [*map(_column, form.key)]
    # Rows of a key come to one task, and stay there when they are grouped.
    found = (
        _shown(changes, form)
        .repartition(TASKS, *key)
        .groupBy(*key, "_commit_version")
        .agg(
            F.first(F.when(is_old, row), ignorenulls=True).alias("_old"),
            F.first(F.when(~is_old, row), ignorenulls=True).alias("_new"),
            F.count(F.when(~is_old, F.lit(1))).alias("_count"),
            F.max("_commit_timestamp").alias("_at"),
        )
        # As text, because maps cannot be compared.
        .where(~F.to_json("_old", TO_JSON).eqNullSafe(F.to_json("_new", TO_JSON)))
    )
    texts = [F.coalesce(each.cast("string"), F.lit(NULL)) for each in key]
    name = F.concat_ws("|", *texts)
    is_deleted = F.col("_new").isNull()
    kind = F.when(is_deleted, "d").when(F.col("_old").isNull(), "c").otherwise("u")
    whole = [F.col(f"_new.{identifier(each)}").alias(each) for each in columns]
    if form.op is None:
        gone, payload = F.lit(None).cast("string"), F.struct(*whole)
    else:
        gone = F.to_json(F.struct(kind.alias(form.op), *key), TO_JSON)
        payload = F.struct(kind.alias(form.op), *whole)
    at = F.col("_at")
    if form.event_time:
        at = F.coalesce(F.col(f"_new.{identifier(form.event_time)}").cast("timestamp"), at)
    properties = F.lit(None).cast("map<string,string>")
    if form.properties:
        parts = [
            F.struct(
                F.lit(each),
                F.coalesce(*(F.col(f"{x}.{identifier(c)}") for x in ("_new", "_old"))).cast(
                    "string"
                ),
            )
            for each, c in form.properties.items()
        ]
        all_of_them = F.map_from_entries(F.array(*parts))
        properties = F.map_filter(all_of_them, lambda _, value: value.isNotNull())
    once = F.when(F.col("_count") > 1, F.raise_error(_twice(form, name))).otherwise(name)
    return found.sortWithinPartitions("_commit_version", *key).select(
        once.alias("key"),
        F.when(is_deleted, gone).otherwise(F.to_json(payload, TO_JSON)).alias("payload"),
        at.alias("event_time"),
        properties.alias("properties"),
    )


def _column(name: str) -> Column:
    """A column, whose name may have dots."""
    return F.col(identifier(name))


def _twice(form: Form, key: Column) -> Column:
    """The error about a key that several rows have, in the form that `failures.py` understands."""
    kind = f"{SettingsError.__module__}.{SettingsError.__qualname__}"
    what = (
        f"{kind}: {_where(form, 'key')}several rows of one version have the same values in the key "
        f"({', '.join(form.key)}), such as "
    )
    return F.concat(F.lit(what), key, F.lit(". Name all columns that identify a row."))


def _shown(changes: DataFrame, form: Form) -> DataFrame:
    """The changes of rows that readers see and that meet the condition; the others are left out."""
    conditions = [F.expr(form.where)] if form.where else []
    for name in hiding_columns(_columns(changes)):
        is_flag = isinstance(changes.schema[name].dataType, BooleanType)
        conditions.append(~F.col(name) if is_flag else F.col(name).isNull())
    return changes.where(reduce(and_, conditions)) if conditions else changes


def _sent(changes: DataFrame, form: Form) -> list[str]:
    """The columns to send."""
    return [*(form.columns or shown_columns(_columns(changes)))]


def _columns(changes: DataFrame) -> list[str]:
    return [name for name in changes.columns if name not in OF_FEEDS]


def _check(changes: DataFrame, table: str, form: Form) -> None:
    """Check that the columns of a table fit what is to be sent, and that Spark takes the condition.

    Raises:
        SettingsError: they do not.
    """
    there = _columns(changes)
    named = {
        "key": form.key,
        "columns": form.columns or [],
        "event_time": [form.event_time] if form.event_time else [],
        "properties": [*form.properties.values()],
    }
    for what, names in named.items():
        for name in names:
            if name not in there:
                message = (
                    f"{_where(form, what)}The table {table} has no column '{name}' for "
                    f"'{what}'. Its columns are {', '.join(there)}."
                )
                raise SettingsError(message)
    if form.op in _sent(changes, form):
        how = "in 'deletes'" if form.sink else "with --op"
        message = (
            f"{_where(form, 'deletes')}The table {table} already has a column '{form.op}'. Choose "
            f"another name for the field of changes {how}."
        )
        raise SettingsError(message)
    try:
        _ = as_messages(changes, form).schema
    except PySparkException as error:
        message = f"{_where(form, 'where')}Spark refuses it: {explain(error)}"
        raise SettingsError(message) from error


def _where(form: Form, key: str) -> str:
    """Where a sink is declared, as the beginning of an error; empty for a command."""
    return f"publish.{form.sink}.{key}: " if form.sink else ""


def _named(lake: Lake, name: str) -> Table:
    match = NAME.fullmatch(name)
    if match is None:
        message = (
            f"'{name}' is not a table name. Write <layer>.<table>, such as silver.users_state."
        )
        raise SettingsError(message)
    return lake.named(*match.groups())


def prepare_topic(settings: LakeSettings, topic: str, partitions: int) -> None:
    """Create a topic for a changelog if it is missing, and warn if messages may come twice."""
    with PulsarAdmin(settings.connection) as admin:
        admin.ensure_namespace(namespace_of(topic))
        if admin.ensure_topic(topic, partitions):
            admin.retain_for_ever(topic)
            admin.deduplicate_topic(topic)
        elif not admin.deduplicates(topic):
            log.warning(
                "message deduplication is off, so a batch that is replayed after a crash is sent "
                "twice; turn it on with `pulsar-admin topicPolicies set-deduplication -e`",
                topic=topic,
            )
