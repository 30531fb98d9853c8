"""What a topic file may declare about a topic, and the rules that are checked.

`topic_file.py` reads the file.
"""

import datetime as dt
import itertools
from collections.abc import Collection
from typing import Annotated, Any, Literal, NoReturn, cast

from pydantic import BeforeValidator, ConfigDict, Field, model_validator

from lake.functions.source import count_of
from lake.topics.address import checked_names, checked_pattern, checked_start
from lake.topics.changelog_rules import Columns, changelog_rules, checked_columns
from lake.topics.durations import Age, Duration
from lake.topics.field_spec import PROPERTIES as PROPERTIES
from lake.topics.field_spec import TIMES as TIMES
from lake.topics.field_spec import Declaration as Declaration
from lake.topics.field_spec import FieldSpec as FieldSpec
from lake.topics.field_spec import Function as Function
from lake.topics.field_spec import Name as Name
from lake.topics.field_spec import checked_function
from lake.topics.field_spec import sql_type as sql_type
from lake.topics.field_type import DECIMAL as DECIMAL
from lake.topics.field_type import FieldType
from lake.topics.field_type import snake_case as snake_case
from lake.topics.lookups import Lookup as Lookup
from lake.topics.lookups import in_order
from lake.topics.nested import Tree, checked_path, exploded, leaves, nested, struct_of, tree_of
from lake.topics.origins import computed, of_the_message

CHANGELOG_ONLY = (
    *("delete", "truncate", "snapshot_end", "envelope", "updates", "ignore_null_updates"),
    *("sequence", "history", "merged_into", "compacted", "tombstones_days"),
)
# Columns that silver adds to those of the fields, in a table or during processing.
OWN_COLUMNS = frozenset(
    (
        *("position", "publish_time", "is_deleted", "resolved_id", "mark"),
        *("valid_from", "valid_to", "missing_lookups", "arrived_batch", "silver_batch"),
        # Only during processing:
        *("_reason", "_came", "_present", "_as", "_known", "_begin", "_end", "_collected", "_mark"),
        *("_row", "_version", "_valid_from", "_valid_to", "_since", "_key", "_into", "_passed"),
        *("_corrupt", "_upserted", "_deleted", "_truncations", "_replay"),
        *("_elements", "_element", "_of"),
        *("_change_type", "_commit_version", "_commit_timestamp"),  # of Delta's change feeds
    )
)


ORDERS = "orders"  # of the state of partial updates only
WATERMARK, LATE_BY = "watermark", "late_by_ms"  # of the list of late events only
SIDES = ("before", "after")  # of an envelope
ELEMENTS = "_elements"  # the field with an array that is to be exploded


def hash_column(name: str) -> str:
    """`emailAddress` -> `email_address_hash`: the column with the hash of a field."""
    return f"{snake_case(name)}_hash"


class Explode(Declaration):
    """One row for each element of an array.

    path: the names that lead to the array. Fields whose path goes on from there are read from the
        elements.
    index: the field with the number of the element, from 0. It is a part of the key.
    function: instead of `path`, the function of `[functions]` that makes the array from a message.
        Fields whose path begins with the name of the function are read from the elements.
    of: the fields whose values are the arguments of `function`, in order.
    """

    path: Annotated[tuple[str, ...], BeforeValidator(checked_path)] = ()
    index: Name
    function: Annotated[Function, BeforeValidator(checked_function)] | None = None
    of: list[Name] = Field(default=[])

    @model_validator(mode="before")
    @classmethod
    def _begins_with_the_function(cls, data: Any) -> Any:
        """Let the path of the elements begin with the name of the function."""
        if isinstance(data, dict) and isinstance(data.get("function"), Function):
            if "path" in data:
                message = "has 'path' and 'function', but the array comes from one of them"
                raise ValueError(message)
            return {**data, "path": [data["function"].name]}
        return data

    @model_validator(mode="after")
    def _has_an_array(self) -> "Explode":
        if not self.path:
            message = (
                "needs 'path', the names that lead to the array, or a 'function' that makes it"
            )
            raise ValueError(message)
        if bool(self.function) != bool(self.of):
            message = "needs 'function' and 'of', the fields that are its arguments, together"
            raise ValueError(message)
        return self


class Rule(Declaration):
    """Selects messages, such as those whose `op` is `d`.

    field: the field whose value is compared.
    equals: the value that selects a message.
    """

    field: Name
    equals: str | int | bool


def _field_spec(value: Any) -> Any:
    return {"type": value} if isinstance(value, str) else value


class View(Declaration):
    """The view `silver.<name>`: a SQL query over silver's tables.

    description: what the view contains, and what one row stands for.
    sql: the query. It names silver's tables and views without `silver.`.
    key: if given, the view is materialized as a table, which follows the changes of what it reads
        row by row. NULL is a key like any other.
    columns: the columns of that table, with their SQL types.
    sources: for a query of which silver cannot derive the keys that a change affects: each table
        that it reads, with the columns that form the key. A row of the result may depend only on
        rows with the same key.
    """

    name: Name
    description: Annotated[str, Field(min_length=1)]
    sql: Annotated[str, Field(min_length=1)]
    key: list[Name] = Field(default=[])
    columns: dict[Name, Annotated[str, Field(pattern=r"^[a-z]+(\([0-9]+,[0-9]+\))?$")]] = Field(
        default={}
    )
    sources: dict[Name, list[Name]] = Field(default={})

    @model_validator(mode="after")
    def _is_whole(self) -> "View":
        if bool(self.key) != bool(self.columns):
            self._refuse("needs 'key' and 'columns' together, or neither of them")
        if self.sources and not self.key:
            self._refuse("has 'sources', which need a 'key'")
        for name in self.key:
            if name not in self.columns:
                self._refuse(f"has the key '{name}', which is not among its columns")
        for name, columns in self.sources.items():
            if len(columns) != len(self.key):
                self._refuse(f"must name as many columns of '{name}' as its key has")
        return self

    def _refuse(self, what: str) -> None:
        message = f"view '{self.name}' {what}"
        raise ValueError(message)


class Topic(Declaration):
    """A topic. `events` are facts; a `changelog` holds the state of its keys.

    kind: whether messages are facts or the state of their keys.
    topic: the topic's names on the broker, mostly one: `persistent://tenant/namespace/name`, or a
        name in the namespace of the settings. The messages of several topics land in one table.
        Default: the name of the declaration, which tables have in any case.
    pattern: instead of `topic`, a regular expression that the names of all its topics match, also
        of those that do not exist yet.
    key: fields that identify a row.
    message_key: the field that `lakehouse publish` sends as message key. Default: the key.
    event_time: the field with the time of the event.
    partitions: the number of partitions with which the topic is created.
    fields: the fields of a message by name; others are ignored.
    lookups: for events, the lookups by the column that holds each row that was found.
    schema: how payloads are read. `json` (default): as JSON objects, regardless of the broker's
        schema registry. `registry`: with the schema version with which the message was published
        (Avro, JSON or a primitive). `string`, `bytes`: as bare values. A bare value is the only
        field besides the key, and the message key, split at `|`, is the key.
    delete: which messages of a changelog delete their key. `tombstone` (default): messages without
        a payload. `never`: none. `{ field = "op", equals = "d" }`: matching messages, and
        tombstones. In an envelope, its `op` marks deletions (`d`) and truncations (`t`).
    truncate: which messages delete all keys whose latest message is older.
    envelope: `debezium`: a payload is `{"op": …, "before": …, "after": …}`, and the fields are
        those of the row in it.
    updates: `whole` (default): a message is the complete row. `partial`: fields that a message does
        not have keep their values, and null is a value.
    sequence: fields that order the messages of a key; the latest message has the highest values.
        Among equals, and without a sequence, the position decides.
    ignore_null_updates: the fields that keep their values if a message has null for them.
    snapshot_end: which messages end a snapshot of the whole table. They delete the keys whose
        latest message has a lower sequence, so these are not in the snapshot.
    history: whether `silver.<topic>_history` keeps all versions (SCD type 2), which are valid from
        their `event_time` on, and which fields make a new version if they change.
    merged_into: the field with the key into which this key was merged. The column `resolved_id`
        is derived from it.
    tombstones_days: the days after which a deleted key is forgotten (tombstone retention). By
        default, it is never forgotten.
    compacted: whether bronze reads the broker's compacted copy of a changelog, as far as it goes.
    lateness: by how much an event may be before the watermark of its topic without being late. If
        given, `silver.late_<topic>` lists the late events.
    explode: makes one row of each element of an array in a message of events.
    keep: the age after which messages of bronze, and the rows of events, are deleted. Messages of a
        changelog that its state is made of are kept at any age.
    evolve: `add`: optional fields that later versions of the registry's schema add are taken over
        as fields that gold does not see.
    start: where bronze begins to read events when it lands the topic for the first time:
        `earliest`, `latest`, or the instant of publishing in ISO 8601.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True)

    name: Name
    kind: Literal["events", "changelog"]
    topic: Annotated[tuple[str, ...], BeforeValidator(checked_names)] = ()
    pattern: Annotated[str | None, BeforeValidator(checked_pattern)] = None
    key: Annotated[list[Name], Field(min_length=1)]
    format: Annotated[Literal["json", "registry", "string", "bytes"], Field(alias="schema")] = (
        "json"
    )
    delete: Literal["tombstone", "never"] | Rule = "tombstone"
    truncate: Rule | None = None
    snapshot_end: Rule | None = None
    envelope: Literal["debezium"] | None = None
    updates: Literal["whole", "partial"] = "whole"
    message_key: Name | None = None
    event_time: Name | None = None
    sequence: list[Name] = Field(default=[])
    history: Annotated[Columns | None, BeforeValidator(checked_columns)] = None
    ignore_null_updates: Annotated[Columns | None, BeforeValidator(checked_columns)] = None
    merged_into: Name | None = None
    partitions: Annotated[int, Field(ge=1, le=1024)] = 1
    compacted: bool = False
    start: Annotated[str, BeforeValidator(checked_start)] = "earliest"
    tombstones_days: Annotated[int, Field(ge=1)] | None = None
    lateness: Duration = dt.timedelta(0)
    keep: Age | None = None
    evolve: Literal["add"] | None = None
    fields: dict[Name, Annotated[FieldSpec, BeforeValidator(_field_spec)]]
    lookups: dict[Name, Lookup] = Field(default={})
    explode: Explode | None = None

    @model_validator(mode="after")
    def _names_are_fields(self) -> "Topic":
        rules = [
            rule
            for rule in (self.delete, self.truncate, self.snapshot_end)
            if isinstance(rule, Rule)
        ]
        named = [
            *self.key,
            *self.sequence,
            self.message_key,
            self.event_time,
            self.merged_into,
            *(rule.field for rule in rules),
            *self.referring,
        ]
        for name in named:
            if name is not None and name not in self.fields:
                self._refuse(f"names '{name}', which is not among its fields")
        for name in (*self.key, *self.sequence):
            if self.fields[name].nullable:
                self._refuse(
                    f"has '{name}' in its key or sequence, so this field must be required and "
                    "have no 'absent'"
                )
        return self

    @model_validator(mode="after")
    def _columns_are_distinct(self) -> "Topic":
        known: dict[str, str] = {}
        columns = [(snake_case(name), f"field '{name}'") for name in self.fields]
        for name in self.lookups:
            columns += [(part.lower(), f"lookup '{name}'") for part in (name, f"{name}_position")]
        for column, what in columns:
            is_own = column in OWN_COLUMNS or (column == ORDERS and self.merges_fields)
            if is_own:
                self._refuse(
                    f"has a {what}, but silver adds a column '{column}' of its own. Leave it "
                    "out or rename it; bronze keeps the whole message"
                )
            if column in known:
                self._refuse(
                    f"has a {known[column]} and a {what}, which both need the column '{column}'"
                )
            known[column] = what
        return self

    @model_validator(mode="after")
    def _rules_fit_the_kind(self) -> "Topic":
        if self.kind == "changelog":
            if self.start != "earliest":
                self._refuse(
                    f"is a changelog, so it must start at 'earliest': keys whose latest message is "
                    f"before '{self.start}' would be missing from its state"
                )
            if self.lookups:
                self._refuse("is a changelog; only events have lookups")
            if self.lists_late:
                self._refuse("is a changelog; only events are late. Remove 'lateness'")
            return self
        for name in CHANGELOG_ONLY:
            if name in self.model_fields_set:
                self._refuse(f"has events, which are all kept; remove '{name}'")
        if self.lists_late:
            self._require_time_of_events()
        return self

    def _require_time_of_events(self) -> None:
        event_time = self.event_time
        if event_time is None:
            self._refuse("has a 'lateness', so it needs an 'event_time'")
        if sql_type(self.fields[event_time]) != "timestamp":
            self._refuse(
                f"has a 'lateness', so the type of its event time '{event_time}' must be "
                "'timestamp' or 'timestamp_ms'"
            )
        for name in (*self.key, event_time):
            if snake_case(name) in (WATERMARK, LATE_BY):
                self._refuse(
                    f"has a 'lateness' and a field '{name}', but the list of late events adds a "
                    f"column '{snake_case(name)}' of its own. Rename the field"
                )

    @model_validator(mode="after")
    def _nothing_needs_what_is_not_kept(self) -> "Topic":
        if self.keep is None:
            return self
        if self.lists_late:
            self._refuse(
                "has 'keep' and a 'lateness', but the list of late events compares each event with "
                "all events before it, and those that are deleted would be missing. Remove one of "
                "them"
            )
        needing = {
            "history": (self.history, "is made of all messages"),
            "updates": (
                self.updates == "partial",
                "with partial updates is made of several messages for each key",
            ),
            "ignore_null_updates": (
                self.ignore_null_updates,
                "is made of several messages for each key",
            ),
            "tombstones_days": (
                self.tombstones_days,
                "forgets deleted keys, which older messages could bring back",
            ),
        }
        for name, (is_set, why) in needing.items():
            if is_set:
                self._refuse(
                    f"has 'keep' and '{name}', but its table {why}, so a rebuild of silver without "
                    "the deleted messages would give other rows. Remove one of them"
                )
        return self

    @model_validator(mode="after")
    def _new_fields_change_no_row(self) -> "Topic":
        if self.evolve is None:
            return self
        if self.format != "registry":
            self._refuse(
                "has 'evolve', but only the registry says which fields are new and optional; set "
                "schema = 'registry' or remove 'evolve'"
            )
        others = {
            "envelope": self.envelope is not None,
            "updates": self.updates == "partial",
            "ignore_null_updates": self.ignore_null_updates is not None,
            "columns or except of history": self.tracked is not None,
        }
        for name, is_set in others.items():
            if is_set:
                self._refuse(
                    f"has 'evolve', which cannot be combined with '{name}', because what a new "
                    "field means must be declared there; declare new fields in this file"
                )
        return self

    @model_validator(mode="after")
    def _rules_fit_each_other(self) -> "Topic":
        """Refuse rules that conflict, or whose result would depend on the order of messages."""
        if self.envelope:
            for name in ("delete", "truncate"):
                if name in self.model_fields_set:
                    self._refuse(
                        "has an envelope, whose op marks deletions and truncations; remove "
                        f"'{name}'"
                    )
            if self.format not in ("json", "registry"):
                self._refuse(f"has an envelope, so its payloads cannot be '{self.format}'")
        elif self.sequence and self.delete == "tombstone":
            self._refuse(
                "has a sequence, but tombstones have no fields to order them by: set 'delete' to "
                "'never' or to a field's value"
            )
        if self.topic and self.pattern:
            self._refuse("has 'topic' and 'pattern', but only one of them can name its topics")
        has_topic_in_key = self.key != self.key_in_message_key
        if (
            self.has_several
            and self.kind == "changelog"
            and not (self.sequence or has_topic_in_key)
        ):
            self._refuse(
                "has several topics, so it needs a 'sequence', which orders the messages of "
                "different topics, or a field with from_message = 'topic' in its key"
            )
        several = "topics" if self.has_several else "partitions" if self.partitions > 1 else None
        if (self.truncate or self.envelope) and not self.sequence and several:
            what = "truncate" if self.truncate else "envelope"  # whose op may truncate
            self._refuse(
                f"has '{what}' and several {several}, so it needs a 'sequence', which shows "
                "which messages are older than a truncation"
            )
        if any(lookup.mode == "as_of" for lookup in self.lookups.values()) and (
            self.event_time is None or self.fields[self.event_time].nullable
        ):
            self._refuse(
                "has an 'as_of' lookup, so it needs an 'event_time', and that field must be "
                "required and have no 'absent'"
            )
        if self.merged_into and len(self.key) > 1:
            self._refuse("has 'merged_into', which needs a key of one field")
        if self.merged_into and self.fields[self.merged_into].type != self.fields[self.key[0]].type:
            self._refuse("has a 'merged_into' field whose type differs from the type of its key")
        return self

    @model_validator(mode="after")
    def _fields_from_elsewhere_fit(self) -> "Topic":
        checks = (
            *(exploded(self), nested(self), of_the_message(self), computed(self)),
            changelog_rules(self),
        )
        for problem in itertools.chain(*checks):
            self._refuse(problem)
        return self

    @model_validator(mode="after")
    def _bare_values_have_one_field(self) -> "Topic":
        bare = {"string": "string", "bytes": "binary"}.get(self.format)
        if bare and [self.fields[name].type for name in self.values] != [bare]:
            self._refuse(
                f"has bare values (schema = '{self.format}'), so it needs exactly one field "
                f"in the payload besides its key, of type {bare}"
            )
        return self

    @model_validator(mode="after")
    def _protection_leaves_what_gold_needs(self) -> "Topic":
        """Refuse to mask or hash keys and references, because gold finds rows by them."""
        references = [*self.key, self.merged_into, *self.referring]
        columns = {snake_case(name) for name in self.fields}
        for name, spec in self.fields.items():
            if spec.is_protected and name in references:
                self._refuse(f"identifies rows by '{name}', which must have personal = 'keep'")
            if spec.personal != "hash":
                continue
            if spec.type != "string":
                self._refuse(f"hashes '{name}' of type {spec.type}; only strings can be hashed")
            if self.merges_fields:
                self._refuse(
                    "has partial updates, which cannot be combined with a hashed field such as "
                    f"'{name}'"
                )
            if hash_column(name) in columns:
                self._refuse(
                    f"has a field for the column '{hash_column(name)}', which holds the hash of "
                    f"'{name}'"
                )
        return self

    def _refuse(self, what: str) -> NoReturn:
        message = f"topic '{self.name}' {what}"
        raise ValueError(message)

    @property
    def referring(self) -> list[str]:
        """The fields by which lookups go."""
        return [name for lookup in self.lookups.values() for name in lookup.own]

    @property
    def lookups_in_order(self) -> dict[str, Lookup]:
        """The lookups, each after those that it goes through."""
        return {name: self.lookups[name] for name in in_order(self)}

    @property
    def hashed(self) -> list[str]:
        """The fields of which gold sees only the hash."""
        return [name for name, spec in self.fields.items() if spec.personal == "hash"]

    def kept_since(self, now: dt.datetime) -> dt.datetime | None:
        """Messages published before this instant are too old to be kept; None if all are kept.

        It is a midnight in UTC, so it is the same for all tables and processes during a day.
        """
        if self.keep is None:
            return None
        instant = now.astimezone(dt.timezone.utc) - self.keep
        return instant.replace(hour=0, minute=0, second=0, microsecond=0)

    @property
    def lists_late(self) -> bool:
        """Whether `silver.late_<topic>` lists the late events."""
        return "lateness" in self.model_fields_set

    @property
    def truncates(self) -> bool:
        """Whether a message may delete all older keys of the topic."""
        return self.kind == "changelog" and (self.truncation or self.envelope) is not None

    @property
    def truncation(self) -> Rule | None:
        """Which messages delete older keys: those that truncate, or that end a snapshot."""
        return self.truncate or self.snapshot_end

    @property
    def merges_fields(self) -> bool:
        """Whether a message may change only some fields of its row."""
        return self.updates == "partial" or self.ignore_null_updates is not None

    @property
    def tracked(self) -> list[str] | None:
        """The fields whose changes make a new version; None if each message makes one.

        Rows of a snapshot repeat those of the one before, so the fields that say which snapshot it
        is are not tracked unless they are named.
        """
        chosen = self.history
        if chosen is None or not (chosen.named or self.snapshot_end):
            return None
        left_out = {*self.key}
        if self.snapshot_end and not chosen.columns:
            left_out |= {*self.sequence, self.snapshot_end.field, str(self.event_time)}
        return [name for name in self.fields if chosen.has(name) and name not in left_out]

    @property
    def keeps_changes(self) -> bool:
        """Whether versions are made from several messages, which `<topic>_changes` then keeps."""
        return self.history is not None and (self.tracked is not None or self.merges_fields)

    @property
    def has_marks(self) -> bool:
        """Whether the state table has rows that are marks instead of keys."""
        return self.truncates or self.tombstones_days is not None

    @property
    def has_several(self) -> bool:
        """Whether it reads several topics of the broker."""
        return self.pattern is not None or len(self.topic) > 1

    @property
    def key_in_message_key(self) -> list[str]:
        """The fields of the key that a message without fields has in its message key, in order.

        The name of the topic is a part of every message.
        """
        return [name for name in self.key if self.fields[name].from_message != "topic"]

    @property
    def order_columns(self) -> list[str]:
        """The columns that order the messages of a key."""
        return [*(snake_case(name) for name in self.sequence), "position"]

    @property
    def values(self) -> list[str]:
        """The fields of the payload that are not part of the key."""
        return [name for name in self.payload_fields if name not in self.key]

    @property
    def payload_fields(self) -> dict[str, FieldSpec]:
        """The fields that are read from the payload."""
        index = self.explode and self.explode.index
        made = self.element_fields if self.explode and self.explode.function else ()
        return {
            name: spec
            for name, spec in self.fields.items()
            if spec.is_in_payload and name != index and name not in made
        }

    @property
    def element_fields(self) -> dict[str, FieldSpec]:
        """The fields that are read from the elements of the array that is exploded."""
        if self.explode is None:
            return {}
        path, fields = self.explode.path, self.fields.items()
        return {name: spec for name, spec in fields if (spec.path or ())[: len(path)] == path}

    @property
    def whole(self) -> "Topic":
        """The topic as one row for each message, with the array in the field `ELEMENTS`."""
        if self.explode is None:
            return self
        within = {*self.element_fields, self.explode.index}
        fields = {name: spec for name, spec in self.fields.items() if name not in within}
        array = FieldType("array", (("", self._element(self.element_fields)),))
        function = self.explode.function
        where = (
            {"function": function, "of": self.explode.of}
            if function
            else {"path": self.explode.path}
        )
        fields[ELEMENTS] = FieldSpec(type=str(array), required=False, **where)
        key = [name for name in self.key if name not in within]
        return self.model_copy(update={"fields": fields, "key": key, "explode": None})

    def _element(self, names: Collection[str]) -> FieldType:
        """The type of the elements of the exploded array, with some of their fields."""
        path = cast(Explode, self.explode).path
        fields = [
            (self.place(n)[len(path) :], s.kind)
            for n, s in self.element_fields.items()
            if n in names
        ]
        [(place, kind), *_] = fields
        return struct_of(tree_of(dict(fields))) if place else kind

    def place(self, name: str) -> tuple[str, ...]:
        """The names that lead to a field of the payload, from the row, or from the envelope."""
        return self.fields[name].path or (name,)

    @property
    def row_tree(self) -> Tree:
        """The fields of a row, as they are nested in it.

        In an envelope, the fields with a path are not in the row.
        """
        return self.tree_with(self.payload_fields)

    def tree_with(self, names: Collection[str]) -> Tree:
        """Some of the fields of a row, as they are nested in it."""
        places = {
            self.place(name): spec.kind
            for name, spec in self.payload_fields.items()
            if name in names and not (self.envelope and spec.path)
        }
        within = self.element_fields
        if self.explode and any(name in names for name in within):
            places = {
                place: kind
                for place, kind in places.items()
                if place[: len(self.explode.path)] != self.explode.path
            }
            places[self.explode.path] = FieldType("array", (("", self._element(names)),))
        return tree_of(places)

    @property
    def payload_tree(self) -> Tree:
        """The fields of a payload, as they are nested in it: the row, or the envelope around it."""
        if not self.envelope:
            return self.row_tree
        found = {spec.path: spec.kind for spec in self.payload_fields.values() if spec.path}
        sides = {(side, *place): kind for side in SIDES for place, kind in leaves(self.row_tree)}
        return tree_of(sides | found)

    @property
    def is_nested(self) -> bool:
        """Whether a row is more than an object of single values."""
        return any(len(place) > 1 or not kind.is_scalar for place, kind in leaves(self.row_tree))

    @property
    def computed_fields(self) -> dict[str, FieldSpec]:
        """The fields that silver computes from the others."""
        made = self.element_fields if self.explode and self.explode.function else ()
        return {n: spec for n, spec in self.fields.items() if spec.is_computed or n in made}

    def computed_from(self, name: str) -> list[str]:
        """The fields from which a field is computed, sorted.

        Raises:
            ValueError: the expression is not one that silver can compute; see `columns_of`.
        """
        known = {snake_case(n): n for n, spec in self.fields.items() if not spec.is_computed}
        spec: FieldSpec | Explode = self.fields[name]
        if self.explode and self.explode.function and name in self.element_fields:
            spec = self.explode
        if spec.function:
            return sorted({*self._arguments(spec.function, spec.of, [*known.values()])})
        from lake.topics.computed import columns_of  # few files need a parser of SQL

        return sorted(known[column] for column in columns_of(str(self.fields[name].sql), known))

    def _arguments(self, function: Function, of: list[str], known: Collection[str]) -> list[str]:
        """The arguments of a function, after a check that it can be called."""
        for each in of:
            if each not in known:
                message = f"names '{each}', which is not another field of the topic, or is computed"
                raise ValueError(message)
        least, most = count_of(function.source, function.called)
        if len(of) < least or (most is not None and len(of) > most):
            takes = (
                f"{least}"
                if least == most
                else f"at least {least}"
                if most is None
                else (f"{least} to {most}")
            )
            message = f"has {len(of)} arguments, but {function.python} takes {takes}"
            raise ValueError(message)
        return of

    @property
    def message_fields(self) -> dict[str, FieldSpec]:
        """The fields that come from a part of the message other than its payload."""
        return {name: spec for name, spec in self.fields.items() if spec.from_message}

    @property
    def key_columns(self) -> list[str]:
        """The columns of the key."""
        return [snake_case(name) for name in self.key]
