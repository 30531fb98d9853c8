"""Tests the rules for paths and nested types, and how fields are arranged."""

from pathlib import Path
from typing import Any

import pytest
from topic import declared, write

from lake.topics.field_type import FieldType
from lake.topics.nested import checked_path, leaves, objects, tree_of
from lake.topics.topic_file import load_topics
from pulsar_spark.errors import SettingsError

TOPIC = """
[topics.readings]
kind = "{kind}"
key = ["id"]
{options}
[topics.readings.fields]
id = "long"
{fields}
"""
ENVELOPE = 'envelope = "debezium"'
CONFIGS = """
[topics.configs]
kind = "changelog"
key = ["id"]
fields = {{ id = "string", site = "string" }}
"""


@pytest.mark.parametrize(
    ("fields", "options", "kind", "says"),
    [
        (
            "lat = { type = 'long', path = 'id.x' }",
            "",
            "events",
            "'lat' at 'id.x', which is within",
        ),
        (
            "a = { type = 'struct<b: long>' }\nb = { type = 'long', path = 'a.b' }",
            *("", "events", "'b' at 'a.b', which is within the field 'a' at 'a'; declare one"),
        ),
        (
            "a = { type = 'long', path = 'x.y' }\nb = { type = 'long', path = 'x.y' }",
            *("", "events", "which is within the field"),
        ),
        (
            "a = { type = 'long', path = 'x.y' }\nb = { type = 'long', path = 'X.z' }",
            *("", "events", "the paths 'x' and 'X', which differ only in case"),
        ),
        ("a = { type = 'long', path = '_corrupt.y' }", "", "events", "silver cannot read"),
        ("a = { type = 'long', path = '' }", "", "events", "a.path: the path has the name ''"),
        ("a = { type = 'long', path = 'x..y' }", "", "events", "a.path: the path has the name ''"),
        ("a = { type = 'long', path = ['x', 'y\"'] }", "", "events", "a quote, a backslash"),
        ("a = { type = 'long', path = 7 }", "", "events", "a.path: '7' is no path"),
        ("a = { type = 'array<>' }", "", "events", ":8: topics.readings.fields.a.type: 'array<>'"),
        (
            "a = { type = 'long', path = 'x.y', from_message = 'key' }",
            *("", "events", "has 'path' and 'from_message', but a value is in one place"),
        ),
        (
            "a = { type = 'array<long>', absent = -1 }",
            *("", "events", "has 'absent' and the type array<long>; only single values"),
        ),
        (
            "a = { type = 'array<string>', from_message = 'properties.x' }",
            *("", "events", "has 'from_message' and the type array<string>"),
        ),
        (
            "a = { type = 'array<timestamp_ms>', sql = 'array(id)' }",
            *("", "events", "so it has no form in JSON"),
        ),
        (
            "a = { type = 'array<string>', personal = 'hash' }",
            *("", "events", "hashes 'a' of type array<string>; only strings can be hashed"),
        ),
        ("a = 'array<long>'", "event_time = 'a'", "events", "'a' in 'event_time', which needs a"),
        ("a = 'array<long>'", "message_key = 'a'", "events", "'a' in 'message_key', which needs"),
        (
            "a = 'array<long>'",
            *("sequence = ['a']\ndelete = 'never'", "changelog", "has 'a' in 'sequence', which"),
        ),
        (
            "a = 'struct<b: long>'",
            *("delete = { field = 'a', equals = 1 }", "changelog", "has 'a' in 'delete', which"),
        ),
        (
            "a = { type = 'struct<p: decimal(10,2), m: map<string, string>>' }",
            *("", "events", "has the decimal 'p' in 'a', and a text in 'a' that may have the same"),
        ),
        (
            "a = { type = 'array<struct<p: decimal(10,2), q: struct<p: date>>>' }",
            *("", "events", "as a field of its own, with 'path'"),
        ),
        (
            "p = 'decimal(10,2)'\nm = 'map<string, string>'\nn = {type = 'long', path = 'x.y'}",
            *(f"{ENVELOPE}\nsequence = ['n']", "changelog", "declare the decimal with another"),
        ),
        (
            "a = { type = 'string', path = 'x.y' }",
            *("schema = 'string'", "changelog", "has 'a' with a path, but a bare value has no"),
        ),
    ],
)
def test_what_silver_could_not_read_rightly_is_refused(
    tmp_path: Path, fields: str, options: str, kind: str, says: str
) -> None:
    path = write(tmp_path, TOPIC.format(fields=fields, options=options, kind=kind))
    with pytest.raises(SettingsError) as error:
        load_topics(path)
    assert says in str(error.value)


def test_a_lookup_needs_a_single_value(tmp_path: Path) -> None:
    lookup = '[topics.readings.lookups]\nconfig = { topic = "configs", on = "a" }'
    text = TOPIC.format(fields="a = 'array<string>'", options="", kind="events")
    with pytest.raises(SettingsError, match="has 'a' in 'on', which needs a single value"):
        declared(tmp_path, CONFIGS.format() + text + lookup)


def test_a_decimal_beside_a_text_of_the_same_name_is_read_in_a_row(tmp_path: Path) -> None:
    """Only within one field, and in an envelope, they cannot be told apart."""
    fields = "p = 'decimal(10,2)'\nm = 'map<string, string>'\nq = { type = 'date', path = 'x.p' }"
    topic = declared(tmp_path, TOPIC.format(fields=fields, options="", kind="events"))
    assert topic.topics["readings"].is_nested


@pytest.mark.parametrize(
    ("written", "names"),
    [
        ("device.geo.lat", ("device", "geo", "lat")),
        ("user-agent", ("user-agent",)),
        (["device", "geo.lat"], ("device", "geo.lat")),
        (["größe"], ("größe",)),
    ],
)
def test_a_path_is_a_text_or_a_list(written: Any, names: tuple[str, ...]) -> None:
    assert checked_path(written) == names


def test_fields_are_arranged_as_a_payload_nests_them(tmp_path: Path) -> None:
    fields = (
        "lat = { type = 'double', path = 'device.geo.lat' }\n"
        "model = { type = 'string', path = 'device.model' }\n"
        "tags = 'array<string>'"
    )
    text = TOPIC.format(fields=fields, options="", kind="events")
    tree = declared(tmp_path, text).topics["readings"].row_tree
    assert tree == {
        "id": FieldType("long"),
        "device": {"geo": {"lat": FieldType("double")}, "model": FieldType("string")},
        "tags": FieldType("array", (("", FieldType("string")),)),
    }
    assert [place for place, _ in objects(tree)] == [("device",), ("device", "geo")]
    assert tree_of(dict(leaves(tree))) == tree


def test_an_envelope_has_its_rows_and_the_fields_beside_them(tmp_path: Path) -> None:
    fields = "lsn = { type = 'long', path = 'source.lsn' }"
    text = TOPIC.format(fields=fields, options=f"{ENVELOPE}\nsequence = ['lsn']", kind="changelog")
    topic = declared(tmp_path, text).topics["readings"]
    row = {"id": FieldType("long")}
    assert topic.row_tree == row
    assert topic.payload_tree == {
        "before": row,
        "after": row,
        "source": {"lsn": FieldType("long")},
    }
    assert not topic.is_nested


EXPLODED = """
[topics.sales]
kind = "events"
key = ["id", "line"]
explode = { path = "lines", index = "line" }
[topics.sales.fields]
id = "long"
line = "int"
sku = { type = "string", path = "lines.sku" }
"""


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ('kind = "events"', 'kind = "changelog"', "is a changelog, and only events can have"),
        ('["id", "line"]', '["id"]', "needs 'line' in its key, because rows of the same message"),
        ('["id", "line"]', '["line"]', "its key must be 'line' and fields of the message"),
        ('["id", "line"]', '["id", "line", "sku"]', "its key must be 'line' and fields"),
        ('line = "int"', 'line = "string"', "needs the field 'line' for 'explode'; declare it as"),
        ('line = "int"', "line = { type = 'int', path = 'n' }", "needs the field 'line' for"),
        ('index = "line"', 'index = "number"', "needs the field 'number' for 'explode'"),
        ('path = "lines.sku"', 'path = "other.sku"', "no field in the elements of 'lines' that is"),
        ('"lines.sku"', '"lines.sku", personal = "mask"', "that is not personal; give a field a"),
        ('key = ["id"', 'event_time = "sku"\nkey = ["id"', "has 'sku' in 'event_time', which must"),
        ('key = ["id"', 'message_key = "line"\nkey = ["id"', "has 'line' in 'message_key', which"),
        (
            'id = "long"',
            'id = "long"\nall = { type = "string", path = "lines" }',
            "has 'all' as an element, and other fields in the elements",
        ),
        ('"lines.sku"', '"lines.a-b"', "a name that a member of a struct cannot have"),
        ('"lines.sku"', '"lines.sku", absent = "-"', "'absent', which fields in the elements"),
        (
            'id = "long"',
            'id = "long"\nx = { type = "string", personal = "hash", path = "lines.x" }',
            "has 'x' with personal = 'hash', which fields in the elements cannot have",
        ),
        (
            'id = "long"',
            'id = "long"\nx = { type = "string", sql = "lower(sku)" }',
            "computes 'x' from 'sku', which is in an element",
        ),
        ('id = "long"', 'id = "long"\nlines = "string"', "which is within the field"),
        ('key = ["id"', 'schema = "string"\nkey = ["id"', "a bare value has no array"),
        ("explode = { path", "explode = { names", "explode.names: unknown key"),
    ],
)
def test_an_array_that_cannot_be_exploded_is_refused(
    tmp_path: Path, old: str, new: str, says: str
) -> None:
    path = write(tmp_path, EXPLODED.replace(old, new))
    with pytest.raises(SettingsError) as error:
        load_topics(path)
    assert says in str(error.value)


def test_an_exploded_topic_is_read_as_one_row_with_an_array(tmp_path: Path) -> None:
    topic = declared(tmp_path, EXPLODED).topics["sales"]
    assert topic.row_tree == topic.whole.row_tree
    assert topic.whole.key == ["id"]
    [(_, element)] = leaves(topic.tree_with(["sku"]))
    assert str(element) == "array<struct<sku: string>>"
    assert [*topic.tree_with(["id"])] == ["id"]


def test_the_elements_may_be_single_values(tmp_path: Path) -> None:
    text = EXPLODED.replace('"lines.sku"', '"lines"')
    [*_, (_, array)] = leaves(declared(tmp_path, text).topics["sales"].row_tree)
    assert str(array) == "array<string>"


def test_people_are_not_looked_up_by_elements(tmp_path: Path) -> None:
    """`lakehouse forget` could not rewrite them."""
    people = CONFIGS.format().replace('"string" }', '{ type = "string", personal = "mask" } }')
    lookup = '[topics.sales.lookups]\nx = { topic = "configs", on = "sku" }'
    with pytest.raises(SettingsError, match="refers to people by 'sku', which must be in the pay"):
        declared(tmp_path, people + EXPLODED + lookup)
