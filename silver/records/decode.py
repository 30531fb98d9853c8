"""Decodes payload bytes into typed rows. A value that does not fit gets a reason, never just NULL.

`parse.py` reads the fields, and `field_types.py` decides which values their types accept.

Money: `decimal(p,s)` takes the JSON number exactly as written and rounds it once, half up, to the
declared scale: 13.750000000000002 becomes 13.75, 0.005 becomes 0.01.
"""

from types import MappingProxyType

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from lake.settings.pseudonyms import PseudonymSecret
from lake.topics.nested import Place
from lake.topics.topic import Rule, Topic, hash_column, snake_case, sql_type
from pulsar_spark.schema import ORDER_FIELDS
from silver.contract.columns import CAME, PRESENT, REASON, as_it_came
from silver.records.by_schema import Schemas
from silver.records.computed import Computed
from silver.records.explode import Exploded
from silver.records.masking import hashes
from silver.records.parse import as_sent, at_path, steps, value
from silver.records.reasons import reason


class Decoder:
    """Decodes the messages of one topic into rows.

    The columns of its plan are built only once, because Python takes longer to build them than
    Spark takes to run them on a small batch.
    """

    def __init__(
        self,
        topic: Topic,
        schemas: Schemas = MappingProxyType({}),
        secret: PseudonymSecret | None = None,
    ) -> None:
        """Build the columns.

        Args:
            topic: the topic of the messages.
            schemas: the known versions of its schema, if the topic uses the schema registry.
            secret: the key of the hashes, if the topic has hashed fields.
        """
        self._exploded = Exploded(topic, topic.explode) if topic.explode else None
        topic = topic.whole
        sent = [name for name, spec in topic.fields.items() if not spec.is_computed]
        own = {"_deletes": _deletes(topic), "_truncates": _truncates(topic), **_present(topic)}
        self._computed = Computed(topic, secret)
        self._steps = [*steps(topic, schemas), own]
        self._columns = [
            *(value(topic, name).alias(snake_case(name)) for name in sent),
            *(
                hashes(value(topic, name), secret).alias(hash_column(name))
                for name in topic.hashed
                if name in sent
            ),
            (F.col("_deletes") | F.col("_truncates")).alias("is_deleted"),
            *_particulars(topic),
            F.struct(*ORDER_FIELDS).alias("position"),
            F.col("publish_time"),
            reason(topic).alias(REASON),
            F.struct(*as_it_came(topic)).alias(CAME),
        ]

    def rows(self, messages: DataFrame) -> DataFrame:
        """Decode messages.

        Returns:
            One row per message, or per element of a topic that is exploded, with the topic's
            columns, `is_deleted`, `position`, `publish_time`, and:

            - `_reason`: why the message is rejected; NULL for a good one. In a rejected row, the
              topic's columns have no meaning.
            - `_came`: the original columns `as_it_came`.
            - `mark`, if the topic has marks: `truncated` for a message that truncates.
            - `_present`, if a message may set only some fields: those that it sets.
            - `valid_from`, for a topic with a history.
            - `_element`, for a topic that is exploded (`Exploded.rows`).
        """
        for step in self._steps:
            messages = messages.withColumns(step)
        rows = self._computed.added_to(messages.select(*self._columns))
        return self._exploded.rows(rows) if self._exploded else rows


def without_what_was_good(rows: DataFrame) -> DataFrame:
    """Keep the original columns of rejected rows only, so that cached rows are half as large."""
    return rows.withColumn(CAME, F.when(F.col(REASON).isNotNull(), F.col(CAME)))


def _present(topic: Topic) -> dict[str, Column]:
    if not topic.merges_fields:
        return {}
    present = _sent(topic) if topic.updates == "partial" else F.array(*map(F.lit, topic.fields))
    ignored = [name for name in topic.fields if _ignores_null(topic, name)]
    if not ignored:
        return {PRESENT: present}
    nulls = (F.when(value(topic, name).isNull(), F.lit(name)) for name in ignored)
    return {PRESENT: F.array_except(present, F.array_compact(F.array(*nulls)))}


def _ignores_null(topic: Topic, name: str) -> bool:
    chosen = topic.ignore_null_updates
    return chosen is not None and chosen.has(name) and name not in (*topic.key, *topic.sequence)


def _sent(topic: Topic) -> Column:
    """The fields that a message has, even if they are null."""
    row = F.get_json_object("_read.json", "$.after") if topic.envelope else F.col("_read.json")
    elsewhere = {name: _is_at(topic, spec.path) for name, spec in topic.fields.items() if spec.path}
    elsewhere |= {name: as_sent(topic, name).isNotNull() for name in topic.message_fields}
    keys = F.coalesce(F.json_object_keys(row), F.array().cast("array<string>"))
    if not elsewhere:
        return keys
    # Members of the payload with the names of these fields do not count.
    keys = F.array_except(keys, F.array(*map(F.lit, elsewhere)))
    found = (F.when(is_there, F.lit(name)) for name, is_there in elsewhere.items())
    return F.array_union(keys, F.array_compact(F.array(*found)))


def _is_at(topic: Topic, path: Place) -> Column:
    """Whether a payload has the member at a path. In an envelope, it must not be null."""
    if topic.envelope:
        return at_path(path, "string").isNotNull()
    if len(path) == 1:
        return F.array_contains(F.json_object_keys("_read.json"), path[0])
    return F.array_contains(F.map_keys(at_path(path[:-1], "map<string,string>")), path[-1])


def _particulars(topic: Topic) -> list[Column]:
    found = []
    if topic.has_marks:
        found.append(F.when(F.col("_truncates"), F.lit("truncated")).alias("mark"))
    if topic.merges_fields:
        found.append(F.col(PRESENT))
    if topic.history:
        own = [value(topic, topic.event_time)] if topic.event_time else []
        found.append(F.coalesce(*own, "event_time", "publish_time").alias("valid_from"))
    return found


def _deletes(topic: Topic) -> Column:
    if topic.kind == "events" or topic.delete == "never":
        return F.lit(False)
    if topic.envelope:
        return F.col("_empty") | F.coalesce(F.col("_parsed.op") == "d", F.lit(False))
    if topic.delete == "tombstone":
        return F.col("_empty")
    return F.col("_empty") | _follows(topic, topic.delete)


def _truncates(topic: Topic) -> Column:
    if topic.envelope:
        return F.coalesce(F.col("_parsed.op") == "t", F.lit(False))
    return F.lit(False) if topic.truncation is None else _follows(topic, topic.truncation)


def _follows(topic: Topic, rule: Rule) -> Column:
    # Cast the constant to the type of the field; a cast of the field could fail for some message.
    equals = F.lit(rule.equals).cast(sql_type(topic.fields[rule.field]))
    return F.coalesce(value(topic, rule.field) == equals, F.lit(False))
