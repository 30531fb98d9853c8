"""Parses the text of a payload into the fields of its topic: as sent, and as values of their types.

The steps of `steps` add these columns to a message, one after the other:

    _read       the JSON text (`text_of_payload`), or the problem if it cannot be parsed safely
    _parsed     the parsed text: the row, or the envelope around it, or a list that has the row
    _empty      whether there is no payload
    _key        the parts of the message key
    _json       the row as parsed, with NULL where a value cannot be read as its type
    _plain      for a message that seems to have an invalid decimal, the row without its decimals
    _value      the values that need conversion, with NULL where the type does not accept one
    _odd        whether a value does not fit, or may not fit
    _again      for an odd message, the text parsed again with looser types
    _text       the row in `_again`
    _text_<n>   for an odd message, the objects within the row, outer ones first

A nested row is parsed in a list, followed by a mark. The text is one object if the list has two
elements and the second is the mark. For flat rows, it is cheaper to look for the first `}`.
"""

import secrets
from collections.abc import Callable
from functools import reduce
from operator import or_
from typing import cast

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.types import (
    ArrayType,
    DataType,
    IntegerType,
    StringType,
    StructField,
    StructType,
)

from lake.topics.field_type import DECIMAL, FieldType
from lake.topics.nested import Place, Tree, leaves, objects, shown, tree_of
from lake.topics.topic import ELEMENTS, TIMES, FieldSpec, Topic, sql_type
from silver.records.by_schema import Schemas
from silver.records.field_types import (
    ESCAPED,
    follows_no_string,
    follows_string,
    has_bad_decimals,
    has_escaped_name,
    is_text,
    looks_like_no_string,
    value_of_text,
    without_bad_decimals,
)
from silver.records.nested_types import (
    any_part,
    first_place,
    has_key_twice,
    is_nested_converted,
    is_refused,
    misfit,
    nested_read_type,
    nested_value_of,
    variants,
)
from silver.records.payload import text_of_payload

CORRUPT = "_corrupt"
# The names of the list and the mark around a nested row. No payload can have them by intention.
LIST, MARK = (f"{name}_{secrets.token_hex(8)}" for name in ("rows", "end"))
UPSERTS = ("c", "u", "r")
ANY = "*"  # for any name: the keys of a map


def steps(topic: Topic, schemas: Schemas) -> list[dict[str, Column]]:
    """The columns to add to messages, step by step. Each step needs the columns of earlier steps.

    Args:
        topic: the topic of the messages.
        schemas: the known versions of the topic's schema, if the topic uses the schema registry.
    """
    text = F.col("_read.json")
    if topic.is_nested:
        text = F.concat(F.lit(f'{{"{LIST}":['), text, F.lit(f',{{"{MARK}":1}}]}}'))
    typed = F.from_json(text, _wrapped(topic, _typed_schema(topic)), _options())
    again = F.from_json("_read.json", _in_envelope(topic, _loose_schema(topic)), _options())
    empty = F.coalesce(F.length("payload") == 0, F.lit(True))
    row = _row(topic, "_parsed", _typed_schema(topic))
    return [
        {"_read": text_of_payload(topic, schemas)},
        *([{"_read": _safe(topic)}] if _is_foreign(topic) else []),
        {"_parsed": typed, "_empty": empty, **_plain(topic)},
        {"_json": _at_paths(row, topic)},
        {**_values(topic), "_odd": _is_odd(topic), "_key": _parts_of_key(topic)},
        {"_again": F.when(F.col("_odd"), again)},
        {"_text": _row(topic, "_again", _loose_schema(topic))},
        *({name: _inner_text(topic, place)} for place, name in _inner(topic).items()),
    ]


def value(topic: Topic, name: str) -> Column:
    """The value of a field, from where it is in the message; NULL if the message has none."""
    spec = topic.fields[name]
    if spec.from_message:
        found = _of_message(spec)
        return found if spec.absent is None else F.when(~_is_absent(topic, name), found)
    found = _accepted(topic, name)
    if spec.absent is not None:
        found = F.when(~_is_absent(topic, name), found)
    if name in topic.key:  # a tombstone or a bare value has its key only in the message key
        from_key = F.get("_key", F.lit(topic.key_in_message_key.index(name)))
        if topic.envelope:  # with an envelope, the message key may be a JSON object
            from_key = F.coalesce(F.get_json_object("key", f"$.{name}"), from_key)
        return F.when(has_key_outside(topic), value_of_text(from_key, spec.kind)).otherwise(found)
    return found


def read(topic: Topic, name: str) -> Column:
    """The value of a field in the payload as `from_json` has read it."""
    if topic.envelope:
        return F.col(f"_json.{name}")
    found = at(F.col("_json"), topic.place(name))
    if has_plain(topic) and not has_decimals(topic, name):
        plain = at(F.col("_plain"), topic.place(name))
        return F.when(F.col("_plain").isNotNull(), plain).otherwise(found)
    return found


def at(row: Column, place: Place) -> Column:
    """The value at a path in a struct."""
    for name in place:
        row = row.getField(name)
    return row


def is_corrupt(topic: Topic) -> Column:
    """Whether a value of the payload could not be read as its type, or its text is not JSON."""
    parsed = "_parsed" if topic.is_nested else "_json"
    return F.col(f"{parsed}.{CORRUPT}").isNotNull()


def is_whole(topic: Topic) -> Column:
    """Whether the text of a nested payload is a single object."""
    rows = F.col(f"_parsed.{LIST}")
    has_mark = F.get(rows, F.lit(1)).getField(MARK) == 1
    return F.coalesce((F.size(rows) == 2) & has_mark, F.lit(False))


def no_objects(topic: Topic) -> dict[Place, Column]:
    """By path, whether a message has something else where a field needs an object."""
    if topic.envelope:
        return {}
    return {
        place: F.col("_odd")
        & at(F.col("_json"), place).isNull()
        & text_at(topic, place).isNotNull()
        for place in _inner(topic)
    }


def text_at(topic: Topic, place: Place) -> Column:
    """For an odd message, what is at a path, as read with a looser type."""
    within = F.col(_inner(topic).get(place[:-1], "_text"))
    return within.getField(place[-1])


def as_sent(topic: Topic, name: str) -> Column:
    """The value of a field before it is converted; NULL if the message does not have the field."""
    spec = topic.fields[name]
    if spec.message_property:
        return F.col("properties").getItem(spec.message_property)
    return F.col(spec.from_message) if spec.from_message else read(topic, name)


def _of_message(spec: FieldSpec) -> Column:
    """The value of a field that is not in the payload; NULL if its type does not accept it."""
    if spec.message_property:
        return value_of_text(F.col("properties").getItem(spec.message_property), spec.kind)
    part = F.col(str(spec.from_message))
    return part if spec.from_message in TIMES else value_of_text(part, spec.kind)


def _is_undecoded(spec: FieldSpec) -> Column:
    """Whether the message has the part that is a field's value, but bronze could not decode it."""
    if spec.message_property:
        wanted = F.lit(spec.message_property).cast("binary")
        return (
            F.coalesce(
                F.exists("raw_properties", lambda each: each["name"] == wanted), F.lit(False)
            )
            & F.col("properties").getItem(spec.message_property).isNull()
        )
    if spec.from_message == "key":
        return F.col("raw_key").isNotNull()
    return F.coalesce(F.contains("undecoded", F.lit(f"{spec.from_message} ")), F.lit(False))


def _is_absent(topic: Topic, name: str) -> Column:
    """Whether a field has the value that stands for NULL."""
    spec = topic.fields[name]
    if spec.from_message:
        return _of_message(spec).eqNullSafe(F.lit(spec.absent).cast(sql_type(spec)))
    absent = F.lit(spec.absent).cast(nested_read_type(spec.kind))
    return read(topic, name).eqNullSafe(absent)


def is_of_another_type(topic: Topic, name: str) -> Column:
    """Whether a message has a value for a field that the field's type does not accept."""
    spec = topic.fields[name]
    if spec.from_message:
        is_other = as_sent(topic, name).isNotNull() & _of_message(spec).isNull()
        return is_other | _is_undecoded(spec)
    found, text = read(topic, name), _text_of(topic, name)
    nothing = _accepted(topic, name).isNull()
    if not spec.kind.is_scalar:
        tests = [
            nothing & (found.isNotNull() | text.isNotNull()),
            any_part(found, spec.kind, is_refused),
            has_key_twice(found, spec.kind),
            _has_no_string(topic, name),
            is_corrupt(topic) & misfit(text, spec.kind, F.lit(name)).isNotNull(),
        ]
        return reduce(or_, [each for each in tests if each is not None])
    if spec.absent is not None:
        nothing = nothing & ~_is_absent(topic, name)
    if not is_text(spec.kind):
        return nothing & (found.isNotNull() | text.isNotNull())
    is_no_string = _has_no_string(topic, name)
    if is_no_string is None:
        is_string = F.coalesce(F.schema_of_variant(text) == "STRING", F.lit(False))
        is_no_string = F.col("_odd") & ~is_string
    return found.isNotNull() & (nothing | is_no_string)


def _has_no_string(topic: Topic, name: str) -> Column | None:
    """For an odd message, whether something else is where a nested field needs a string.

    The whole text is parsed again with variants, because the text of an object within it, as
    `from_json` returns it, has some numbers as strings. None if the field is not nested, or has no
    strings.
    """
    spec = topic.fields[name]
    place = topic.place(name)
    if (spec.kind.is_scalar and (len(place) == 1 or topic.envelope)) or not any(
        is_text(kind) for _, _, kind in spec.kind.scalars()
    ):
        return None
    if not topic.envelope or spec.path:
        return _lacks_string(place, spec.kind)
    is_after = F.col("_parsed.op").isin(*UPSERTS)
    after, before = (_lacks_string((side, name), spec.kind) for side in ("after", "before"))
    return F.when(is_after, after).otherwise(before)


def _lacks_string(place: Place, kind: FieldType) -> Column:
    ddl = variants(kind)
    for part in reversed(place):
        ddl = f"struct<`{part}`:{ddl}>"
    text = F.when(F.col("_odd"), F.col("_read.json"))
    # An object with a name twice is no variant. It is no string either.
    parsed = F.from_json(text, f"{ddl[:-1]},{CORRUPT}:string>", _options())

    def is_other(part: Column, scalar: FieldType) -> Column | None:
        return ~F.schema_of_variant(part).isin("STRING", "VOID") if is_text(scalar) else None

    has_other = cast(Column, any_part(at(parsed, place), kind, is_other))
    found = F.coalesce(parsed.getField(CORRUPT).isNotNull() | has_other, F.lit(False))
    return F.col("_odd") & found


def misfit_of(topic: Topic, name: str) -> Column:
    """The place of what a field with parts does not accept; NULL if it is the field itself."""
    kind, label = topic.fields[name].kind, label_of(topic, name)
    places = [misfit(_text_of(topic, name), kind, F.lit(label))]
    refused = first_place(read(topic, name), kind, is_refused, F.lit(label))
    found = F.coalesce(*places, *([] if refused is None else [refused]))
    is_string = F.coalesce(_follows_a_string(topic, name), F.lit(False))
    return F.when((found != label) & ~is_string, found)


def label_of(topic: Topic, name: str) -> str:
    """The name of a field as reasons show it. An array to be exploded is not a declared field."""
    return shown(topic.place(name)) if name == ELEMENTS else name


def _text_of(topic: Topic, name: str) -> Column:
    """For an odd message, the value of a field, as read with a looser type."""
    spec = topic.fields[name]
    if topic.envelope and spec.path:
        return at_path(spec.path, _loose_type(spec.kind))
    return text_at(topic, topic.place(name))


def _follows_a_string(topic: Topic, name: str) -> Column:
    return F.col("_read.json").rlike(follows_string(topic.place(name)[-1]))


def has_key_outside(topic: Topic) -> Column:
    """Whether the key of a message is only in the message key, and not in the payload."""
    if topic.format == "json":
        return F.col("_empty")
    return F.col("_empty") | F.coalesce("_read.is_bare", F.lit(False))


def at_path(path: Place, kind: str) -> Column:
    """The value at a path in the payload, read as the type `kind`."""
    for part in reversed(path):
        kind = f"struct<`{part}`:{kind}>"
    return at(F.from_json("_read.json", kind, _options()), path)


def _is_foreign(topic: Topic) -> bool:
    """Whether the text may be a producer's JSON, rather than JSON that we have written."""
    return topic.format in ("json", "registry")


def _safe(topic: Topic) -> Column:
    """`_read` with a text that is safe to parse; an unsafe text becomes a problem."""
    text = F.col("_read.json")
    escaped = F.when(has_escaped_name(text), F.lit(ESCAPED))
    problem = F.coalesce("_read.problem", escaped)
    safe = F.when(problem.isNull(), without_bad_decimals(text, topic))
    parts = {"json": safe, "is_bare": F.col("_read.is_bare"), "problem": problem}
    if has_plain(topic):
        is_bad = cast(Column, has_bad_decimals(text, topic))
        parts["original"] = F.when(problem.isNull() & is_bad, text)
    return F.struct(*(part.alias(name) for name, part in parts.items()))


def has_plain(topic: Topic) -> bool:
    """Whether fields without decimals are read from the original text, in which none is replaced.

    Elsewhere in the payload, a text may have the name of a decimal, such as the key of a map.
    """
    if not topic.is_nested:
        return False
    decimals, others = set[str](), set[str]()
    for name, spec in topic.payload_fields.items():
        for own, holder, _ in spec.kind.scalars(topic.place(name)[-1]):
            known = decimals if has_decimals(topic, name) else others
            known |= {ANY} if holder == "map" else {own} if holder is None else set()
    return bool(decimals) and (ANY in others or bool(decimals & others))


def has_decimals(topic: Topic, name: str) -> bool:
    """Whether a field has a decimal, or is one."""
    scalars = topic.fields[name].kind.scalars()
    return any(DECIMAL.fullmatch(kind.name) for _, _, kind in scalars)


def _plain(topic: Topic) -> dict[str, Column]:
    if not has_plain(topic):
        return {}
    places = {topic.place(name) for name in topic.payload_fields if not has_decimals(topic, name)}
    tree = tree_of({place: kind for place, kind in leaves(topic.row_tree) if place in places})
    return {"_plain": F.from_json("_read.original", _struct(tree, nested_read_type), _options())}


def _is_odd(topic: Topic) -> Column:
    odd = F.col("_json").isNull() | is_corrupt(topic)
    if not _is_foreign(topic):
        return odd
    suspects = [_may_be_no_string(topic, name) for name in topic.payload_fields]
    known = [each for each in suspects if each is not None]
    return F.coalesce(reduce(or_, known, odd), F.lit(False))


def _may_be_no_string(topic: Topic, name: str) -> Column | None:
    """Whether a text of a field may be something else in JSON; may be NULL. None if it has none."""
    kind, json = topic.fields[name].kind, F.col("_read.json")

    def looks_so_here(each: Column, scalar: FieldType) -> Column | None:
        return looks_like_no_string(each) if is_text(scalar) else None

    looks_so = any_part(read(topic, name), kind, looks_so_here)
    if looks_so is None:
        return None
    follows = [
        follows_no_string(json, own, holder) if own else F.lit(True)
        for own, holder, scalar in kind.scalars(topic.place(name)[-1])
        if is_text(scalar)
    ]
    return looks_so & reduce(or_, follows)


def _parts_of_key(topic: Topic) -> Column:
    """The parts of the message key, one for each field of the topic's key that it has.

    NULL if the key is in the payload, or if the number of parts is wrong.
    """
    count = len(topic.key_in_message_key)
    parts = F.array("key") if count == 1 else F.split(F.col("key"), r"\|")
    return F.when(has_key_outside(topic) & (F.size(parts) == count), parts)


def _values(topic: Topic) -> dict[str, Column]:
    values = [
        nested_value_of(read(topic, name), spec.kind).alias(name)
        for name, spec in topic.payload_fields.items()
        if is_nested_converted(spec.kind)
    ]
    return {"_value": F.struct(*values)} if values else {}


def _accepted(topic: Topic, name: str) -> Column:
    """The value of a field in the payload; NULL if its type does not accept the value."""
    if is_nested_converted(topic.fields[name].kind):
        return F.col(f"_value.{name}")
    return read(topic, name)


def _wrapped(topic: Topic, row: StructType) -> StructType:
    """The schema of the text: that of the payload, or of the list around it."""
    if not topic.is_nested:
        return _in_envelope(topic, row)
    each = StructType([*row.fields, StructField(MARK, IntegerType())])
    return StructType([StructField(LIST, ArrayType(each)), StructField(CORRUPT, StringType())])


def _in_envelope(topic: Topic, row: StructType) -> StructType:
    """The schema of the payload: the row, or an envelope around it."""
    if not topic.envelope:
        return row
    text = StringType()
    sides = [StructField(side, row) for side in ("before", "after")]
    return StructType([StructField("op", text), *sides, StructField(CORRUPT, text)])


def _row(topic: Topic, parsed: str, row: StructType) -> Column:
    """The row in the parsed payload. The row of a truncation has no fields."""
    if topic.is_nested and parsed == "_parsed":
        return F.get(F.col(f"{parsed}.{LIST}"), F.lit(0))
    if not topic.envelope:
        return F.col(parsed)
    op = F.col(f"{parsed}.op")
    side = F.when(op.isin(*UPSERTS), F.col(f"{parsed}.after")).when(
        op == "d", F.col(f"{parsed}.before")
    )
    side = side.withField(CORRUPT, F.col(f"{parsed}.{CORRUPT}"))
    return F.when(op == "t", F.from_json(F.lit("{}"), row)).otherwise(side)


def _at_paths(row: Column, topic: Topic) -> Column:
    """The row with the fields that are elsewhere in the envelope."""
    for name, spec in topic.fields.items():
        if topic.envelope and spec.path:
            row = row.withField(name, at_path(spec.path, nested_read_type(spec.kind)))
    return row


def _typed_schema(topic: Topic) -> StructType:
    corrupt = [] if topic.is_nested else [StructField(CORRUPT, StringType())]
    fields = _struct(members(topic), nested_read_type).fields
    return StructType([*fields, *corrupt])


def _loose_schema(topic: Topic) -> StructType:
    """Text fields are read as variants, which keep the JSON type; all others as strings."""
    fields = _flat(members(topic)).fields
    return StructType([*fields, StructField(CORRUPT, StringType())])


def members(topic: Topic) -> Tree:
    """The fields of a row. In an envelope, also those that are elsewhere in it."""
    if not topic.envelope:
        return topic.row_tree
    return {name: spec.kind for name, spec in topic.payload_fields.items()}


def _struct(tree: Tree, type_of: Callable[[FieldType], str]) -> StructType:
    """The schema of an object, with objects in it."""
    return StructType(
        [
            StructField(
                name,
                _type(type_of(inner)) if isinstance(inner, FieldType) else _struct(inner, type_of),
            )
            for name, inner in tree.items()
        ]
    )


def _flat(tree: Tree) -> StructType:
    """The loose schema of an object. Objects in it are read as strings."""
    return StructType(
        [
            StructField(
                name, _type(_loose_type(inner) if isinstance(inner, FieldType) else "string")
            )
            for name, inner in tree.items()
        ]
    )


def _loose_type(kind: FieldType) -> str:
    return "variant" if is_text(kind) else "string"


def _type(ddl: str) -> DataType:
    return cast(StructType, StructType.fromDDL(f"c {ddl}")).fields[0].dataType


def _inner(topic: Topic) -> dict[Place, str]:
    """The column of each object within a row."""
    if topic.envelope:
        return {}
    places = (place for place, _ in objects(topic.row_tree))
    return {place: f"_text_{number}" for number, place in enumerate(places)}


def _inner_text(topic: Topic, place: Place) -> Column:
    tree = dict(objects(topic.row_tree))[place]
    return F.from_json(text_at(topic, place), _flat(tree), _options())


def _options() -> dict[str, str]:
    return {
        "mode": "PERMISSIVE",
        "columnNameOfCorruptRecord": CORRUPT,
        "allowSingleQuotes": "false",
    }
