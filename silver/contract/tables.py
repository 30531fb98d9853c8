"""Silver's table contracts, derived from the topic file. This is what gold and BI rely on.

Every row has the `position` of the message that it was made from. Positions are compared field by
field, and form a total order. If partitions were added to a topic, the first field `order_time`
orders messages of different partitions (`pulsar_spark/eras.py`). It is NULL for earlier messages,
and NULL comes first.
"""

import json
from collections.abc import Iterable

from lake.functions.source import checksum
from lake.tables.lake import Lake
from lake.tables.spec import APPEND_ONLY, CHANGE_FEED, DELETION_VECTORS, TableSpec
from lake.topics.topic import Topic, View, hash_column, snake_case, sql_type
from lake.topics.topic_file import TopicFile
from lake.topics.views.joins import JoinOf
from lake.topics.views.late import LateEvents
from pulsar_spark.schema import ADDED, POSITION, Column
from silver.contract.columns import COLLECTED, DELETED, PRESENT, UPSERTED, registers

BATCHES = ("arrived_batch", "silver_batch")

FUNCTION = "function."  # begins the names of the fields in DECLARED that functions compute

# Property: for each personal column, what gold sees of it (macros/protected.sql): `mask`, `null`,
# `hash` (in a column of its own), or, within the row of a lookup, nothing (`leave out`).
PERSONAL = "lakehouse.personal"

# Property: the declarations that the rows follow from, besides the columns. If one changes, the
# existing rows would have to be made again (`silver/declared.py`).
DECLARED = "lakehouse.declared"

QUARANTINE = TableSpec(
    "silver",
    "quarantine",
    "Rejected records. Grain: one message; records that a replay has applied are removed",
    (
        Column("topic", "string", "Short name of the topic", nullable=False),
        Column("position", POSITION, "Position of the message", nullable=False),
        Column("reason", "string", "Why it was rejected", nullable=False),
        Column("status", "string", "`open`, or `discarded` permanently", nullable=False),
        Column("key", "string", "Message key"),
        Column("payload", "binary", "Value, byte for byte"),
        Column("event_time", "timestamp", "Event time set by the producer"),
        Column("publish_time", "timestamp", "When it was published", nullable=False),
        Column("schema_version", "bigint", "Schema version it was published with, if any"),
        Column("silver_batch", "bigint", "Batch that rejected it", nullable=False),
    ),
    fields=ADDED,
)

RECONCILIATION = TableSpec(
    "silver",
    "reconciliation",
    "Audit of the messages read. Grain: one batch and topic; messages_in = applied + superseded + "
    "quarantined + discarded. Batches below 0 are decisions about the quarantine; all batches "
    "older than history_days are one row per topic",
    (
        Column("silver_batch", "bigint", "Batch of the silver query", nullable=False),
        Column("topic", "string", "Short name of the topic", nullable=False),
        Column("messages_in", "bigint", "Messages read from bronze", nullable=False),
        Column("applied", "bigint", "Messages that made or changed a row", nullable=False),
        Column("superseded", "bigint", "Stale or duplicate: a later one is known", nullable=False),
        Column("quarantined", "bigint", "Messages put into quarantine; open ones", nullable=False),
        Column("discarded", "bigint", "Messages in quarantine given up", nullable=False),
        Column("waiting", "bigint", "Applied rows that lack a lookup", nullable=False),
        Column("watermark", "timestamp", "Latest event time up to this batch, NULL if none"),
        Column("late", "bigint", "Messages older than the previous watermark", nullable=False),
        Column("max_lateness_ms", "bigint", "Greatest lateness of those messages"),
    ),
)

CUTS = TableSpec(
    "silver",
    "cuts",
    "Snapshots: versions of all tables that belong together. Grain: one batch of the silver query "
    "or, below 0, one decision about the quarantine, of the last history_days",
    (
        Column("silver_batch", "bigint", "Batch of the silver query", nullable=False),
        Column("committed_at", "timestamp", "When it was finished", nullable=False),
        Column("versions", "map<string,bigint>", "Delta version by table name", nullable=False),
        Column("positions", "map<string,string>", "By topic, where reading ended", nullable=False),
    ),
)

SCHEMAS = TableSpec(
    "silver",
    "schemas",
    "Schema versions that messages were published with. Grain: topic and version; never changed",
    (
        Column("topic", "string", "Short name of the topic", nullable=False),
        Column("version", "bigint", "Version, counted by the broker from 0", nullable=False),
        Column(
            "type",
            "string",
            "AVRO, JSON, PROTOBUF_NATIVE, or a primitive",
            nullable=False,
        ),
        Column("definition", "string", "The schema; empty for primitives", nullable=False),
    ),
    {APPEND_ONLY: "true"},
)


def field_columns(topic: Topic) -> list[Column]:
    """The topic's own columns, in the order of its declaration."""
    return [
        Column(snake_case(name), sql_type(spec), f"Field {name} of the message")
        for name, spec in topic.fields.items()
    ]


def own_columns(topic: Topic) -> list[Column]:
    """The columns of the fields, and of the hashes that gold sees instead of some fields."""
    hashes = [
        Column(hash_column(name), "string", f"Keyed hash of the field {name}")
        for name in topic.hashed
    ]
    return [*field_columns(topic), *hashes]


def _protection(
    topic: Topic, lookups: dict[str, Topic] | None = None, *, has_hashes: bool = True
) -> dict[str, str]:
    """The property that says what gold sees of a table; empty if gold sees everything.

    Without columns for hashes, fields that are hashed elsewhere are masked.
    """
    found = {}
    for name, spec in topic.fields.items():
        if spec.is_protected:
            how = str(spec.personal) if has_hashes else "mask"
            found[snake_case(name)] = "null" if how == "mask" and spec.type != "string" else how
    for lookup, target in (lookups or {}).items():
        names = [snake_case(name) for name, spec in target.fields.items() if spec.is_protected]
        found |= {f"{lookup}.{name}": "leave out" for name in names}
    return {PERSONAL: json.dumps(found)} if found else {}


def _declared(topic: Topic, history: list[str] | None = None) -> dict[str, str]:
    """The property with the declarations that the rows of a topic's table follow from.

    `history` has the tracked fields, for tables of versions.
    """
    found: dict[str, object] = {"key": topic.key}
    if topic.sequence:
        found["sequence"] = topic.sequence
    if history is not None:
        found["history"] = sorted(history)
    if topic.ignore_null_updates:
        ignored = [name for name in topic.fields if topic.ignore_null_updates.has(name)]
        found["ignore_null_updates"] = sorted(ignored)
    if topic.snapshot_end:
        found["snapshot_end"] = topic.snapshot_end.model_dump()
    if topic.explode:
        explode, of_function = topic.explode, {"function", "of"}
        found["explode"] = explode.model_dump(mode="json", exclude=of_function)
        if explode.function:
            found[f"{FUNCTION}{explode.index}"] = checksum(explode.function.digest, *explode.of)
    for name, lookup in topic.lookups.items():
        found[f"lookups.{name}"] = lookup.model_dump()
    for name, spec in topic.computed_fields.items():
        if spec.function:
            found[f"{FUNCTION}{name}"] = checksum(spec.function.digest, *spec.of)
    return {DECLARED: json.dumps(found, sort_keys=True)}


def lookup_columns(topic: Topic) -> list[Column]:
    """The columns of a looked-up row: those of the topic, and what became of the key."""
    found = field_columns(topic)
    if topic.merged_into:
        found.append(_resolved(topic))
    return [*found, Column("is_deleted", "boolean", "Whether the key was deleted")]


def _resolved(topic: Topic) -> Column:
    [key] = topic.key
    kind = sql_type(topic.fields[key])
    return Column("resolved_id", kind, "Key at the end of the merge chain, NULL within a cycle")


def state_table(topic: Topic) -> TableSpec:
    """State of a changelog. Grain: one key; a deleted key stays as a tombstone."""
    columns = own_columns(topic)
    searched = [*topic.key_columns, "publish_time", "silver_batch"]
    if topic.merged_into:
        columns.append(_resolved(topic))
        searched.append(snake_case(topic.merged_into))
    columns.append(Column("is_deleted", "boolean", "The key was deleted", nullable=False))
    if topic.has_marks:
        columns.append(Column("mark", "string", "Not NULL if no key: `truncated`, `collected`"))
    if topic.merges_fields:
        columns.append(Column("orders", _orders(topic), "Order of the message that set each field"))
    return TableSpec(
        "silver",
        f"{topic.name}_state",
        f"Latest message per key of {topic.name}, deleted keys included",
        (*columns, *_MADE_FROM),
        # A change marks the old row instead of rewriting its file, so the cost of a batch does not
        # grow with the table.
        {
            **_statistics(searched),
            **CHANGE_FEED,
            **_protection(topic),
            **_declared(topic),
            DELETION_VECTORS: "true",
        },
        _names(topic),
        _structs(topic),
        clustered_by=tuple(topic.key_columns),
    )


_MADE_FROM = (
    Column("position", POSITION, "Message that the row comes from", nullable=False),
    Column("publish_time", "timestamp", "When that message was published", nullable=False),
    Column("silver_batch", "bigint", "Batch that last wrote the row", nullable=False),
)


def _orders(topic: Topic) -> str:
    types = {c.name: c.type for c in field_columns(topic)} | {"position": POSITION}
    order = ",".join(f"{name}:{types[name]}" for name in topic.order_columns)
    names = [UPSERTED, DELETED, *registers(topic)]
    if topic.tombstones_days is not None:
        names.append(COLLECTED)
    return f"struct<{','.join(f'{name}:struct<{order}>' for name in names)}>"


_MARK = Column("mark", "string", "Not NULL if no key: `truncated`, which ends older versions")


def history_table(topic: Topic) -> TableSpec:
    """All versions of a changelog (SCD type 2). Grain: one message, valid for a time span.

    The span is in event time. If versions are made from several messages, each is from the last of
    them.
    """
    return _by_event_time(
        topic,
        "history",
        f"Versions of the rows of {topic.name}, valid from valid_from until just before valid_to",
        (
            Column("valid_from", "timestamp", "Event time of the version", nullable=False),
            Column("valid_to", "timestamp", "Event time of the next version, NULL for the last"),
            *([_MARK] if topic.truncates and not topic.keeps_changes else []),
        ),
        searched=("valid_from", "valid_to"),
        properties=CHANGE_FEED,
    )


def changes_table(topic: Topic) -> TableSpec:
    """The messages from which the versions of a changelog are made. Grain: one message."""
    present = Column(PRESENT, "array<string>", "Fields that the message sets")
    return _by_event_time(
        topic,
        "changes",
        f"Messages of {topic.name} from which {topic.name}_history is made",
        (
            Column("valid_from", "timestamp", "Event time of the message", nullable=False),
            *([_MARK] if topic.truncates else []),
            *([present] if topic.merges_fields else []),
        ),
        searched=("valid_from",),
        properties={},
    )


def _by_event_time(
    topic: Topic,
    suffix: str,
    description: str,
    columns: Iterable[Column],
    searched: Iterable[str],
    properties: dict[str, str],
) -> TableSpec:
    """A table of a changelog with several rows for each key, by event time.

    Args:
        topic: the changelog.
        suffix: what follows the name of the topic in that of the table.
        description: what the table has.
        columns: its columns besides the fields and those of all tables.
        searched: those of them by which rows are found.
        properties: its properties besides those of both tables.
    """
    return TableSpec(
        "silver",
        f"{topic.name}_{suffix}",
        description,
        (
            *field_columns(topic),
            Column("is_deleted", "boolean", "The key was deleted", nullable=False),
            *columns,
            *_MADE_FROM,
        ),
        {
            **_statistics([*topic.key_columns, *searched, "publish_time", "silver_batch"]),
            **properties,
            **_protection(topic, has_hashes=False),
            **_declared(topic, history=topic.tracked),
        },
        _names(topic),
        _structs(topic),
        clustered_by=tuple(topic.key_columns),
    )


def enriched_table(topic: Topic, topics: TopicFile) -> TableSpec:
    """Events with their lookups. Grain: one key of the topic, exactly once."""
    lookups: list[Column] = []
    for name, lookup in topic.lookups.items():
        parts = lookup_columns(topics.topics[lookup.topic])
        row = f"struct<{','.join(f'{c.name}:{c.type}' for c in parts)}>"
        when = "at arrival" if lookup.mode == "latest" else "at the event time"
        lookups.append(Column(name, row, f"Row of {lookup.topic} {when}; NULL if unknown"))
        lookups.append(Column(f"{name}_position", POSITION, f"Version of that {name} row"))
    return TableSpec(
        "silver",
        f"enriched_{topic.name}",
        f"Every record of {topic.name} once, with the rows it refers to",
        (
            *own_columns(topic),
            *lookups,
            Column("missing_lookups", "int", "Number of lookups that are NULL", nullable=False),
            Column("position", POSITION, "Message that the row comes from", nullable=False),
            Column("publish_time", "timestamp", "When that message was published", nullable=False),
            Column("arrived_batch", "bigint", "Batch in which it arrived", nullable=False),
            Column("silver_batch", "bigint", "Batch that last wrote the row", nullable=False),
        ),
        _statistics(
            [
                *topic.key_columns,
                *([snake_case(topic.event_time)] if topic.event_time else []),
                *("missing_lookups", "publish_time", *BATCHES),
            ]
        )
        | CHANGE_FEED
        | _declared(topic)
        | _protection(topic, {n: topics.topics[x.topic] for n, x in topic.lookups.items()}),
        # Rows from before the array was exploded would need a number.
        _names(topic, *(topics.topics[lookup.topic] for lookup in topic.lookups.values()))
        - ({snake_case(topic.explode.index)} if topic.explode else set()),
        _structs(topic).union(
            *(_structs(topics.topics[x.topic], f"{n}.") for n, x in topic.lookups.items())
        ),
    )


def view_table(view: View, topics: TopicFile) -> TableSpec:
    """The table of a view with a key (a materialized view), or of a join. Grain: its key.

    The late events of a topic are such a view if something reads them as a table.
    """
    join = topics.joined.get(view.name)
    columns = (
        *(Column(name, kind, f"{name} of the view") for name, kind in view.columns.items()),
        Column("silver_batch", "bigint", "Batch that last wrote the row", nullable=False),
    )
    properties = {**CHANGE_FEED, DELETION_VECTORS: "true"}
    if join is None:
        if late := topics.late_views().get(view.name):
            properties |= _protection_of_late(late)
        return TableSpec(
            "silver", view.name, view.description, columns, properties, clustered_by=tuple(view.key)
        )
    comments = _comments_of_join(join)
    searched = [*join.key, join.reach.column, "silver_batch"]
    return TableSpec(
        "silver",
        view.name,
        view.description,
        tuple(Column(c.name, c.type, comments.get(c.name, c.comment), c.nullable) for c in columns),
        {**properties, **_statistics(searched), **_protection_of_join(join)},
        # A field that is added to a topic is added to its joins. Rows come in the order of time.
        frozenset(join.view_columns),
    )


def _comments_of_join(join: JoinOf) -> dict[str, str]:
    ours = {c.name: f"{c.comment} of {join.left.name}" for c in own_columns(join.left)}
    theirs = {
        join.join.of_right(c.name): f"{c.comment} of {join.right.name}; NULL without a partner"
        for c in own_columns(join.right)
    }
    return ours | theirs


def _protection_of_join(join: JoinOf) -> dict[str, str]:
    """The property that says what gold sees of a join: of each field what it sees of the topic."""
    found: dict[str, str] = {}
    for topic, named in ((join.left, str), (join.right, join.join.of_right)):
        declared = json.loads(_protection(topic).get(PERSONAL, "{}"))
        found |= {named(column): how for column, how in declared.items()}
    return {PERSONAL: json.dumps(found)} if found else {}


def _protection_of_late(late: LateEvents) -> dict[str, str]:
    """The property that says what gold sees of late events: what it sees of the topic."""
    declared = json.loads(_protection(late.topic).get(PERSONAL, "{}"))
    found = {name: how for name, how in declared.items() if name in late.view.columns}
    return {PERSONAL: json.dumps(found)} if found else {}


def _names(*topics: Topic) -> frozenset[str]:
    return ADDED | {column.name for topic in topics for column in field_columns(topic)}


def _structs(topic: Topic, within: str = "") -> frozenset[str]:
    """The paths of the columns whose values are structs."""
    fields = topic.fields.items()
    return frozenset(within + snake_case(n) for n, spec in fields if spec.kind.name == "struct")


def _statistics(columns: list[str]) -> dict[str, str]:
    """The property that limits statistics to the columns used for searching.

    Statistics of other columns only cost the writer time. By default, the first 32 columns have
    statistics, and each field of a struct counts as one.
    """
    return {"delta.dataSkippingStatsColumns": ",".join(columns)}


def silver_tables(topics: TopicFile) -> list[TableSpec]:
    """All tables that the silver query owns."""
    return [
        *(state_table(topic) for topic in topics.changelogs()),
        *(history_table(topic) for topic in topics.changelogs() if topic.history),
        *(changes_table(topic) for topic in topics.changelogs() if topic.keeps_changes),
        *(enriched_table(topic, topics) for topic in topics.events()),
        *(view_table(view, topics) for view in topics.kept_views()),
        QUARANTINE,
        RECONCILIATION,
        CUTS,
        *([SCHEMAS] if any(t.format == "registry" for t in topics.topics.values()) else []),
    ]


def own_tables(lake: Lake) -> list[TableSpec]:
    """The tables of silver that a lake has itself: all, unless it is beside another lake."""
    return [spec for spec in silver_tables(lake.topics) if lake.owns(spec)]


def main_table(topic: Topic, topics: TopicFile) -> TableSpec:
    """The table with the rows of a topic: the state of a changelog, or the enriched events."""
    return state_table(topic) if topic.kind == "changelog" else enriched_table(topic, topics)


def tables_of(topic: Topic, topics: TopicFile) -> list[TableSpec]:
    """The tables that are made of the messages of one topic."""
    found = [main_table(topic, topics)]
    if topic.history:
        found.append(history_table(topic))
    if topic.keeps_changes:
        found.append(changes_table(topic))
    return found
