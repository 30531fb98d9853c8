"""Tests that payloads are read by their schemas without Spark; see also `test_field_types.py`."""

import io
import json
import subprocess
import sys

import fastavro
import pytest

from lake.topics.field_type import FieldType, field_type
from lake.topics.nested import Tree
from silver.records.by_schema import PayloadError, Schema, schema_of, text_of

PERSON = {
    "type": "record",
    "name": "Person",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "photo", "type": "bytes"},
        {"name": "born", "type": {"type": "int", "logicalType": "date"}},
    ],
}
TREE: Tree = {
    "id": FieldType("long"),
    "photo": FieldType("binary"),
    "born": FieldType("date"),
}
ONE: Tree = {"n": FieldType("int")}
AVRO = Schema("AVRO", json.dumps(PERSON))


def avro(record: object) -> bytes:
    content = io.BytesIO()
    fastavro.schemaless_writer(content, PERSON, record)
    return content.getvalue()


def test_an_avro_record_becomes_json() -> None:
    payload = avro({"id": 7, "photo": b"\x00\xff", "born": 20_000})
    text, is_bare = text_of(payload, AVRO, ["photo", "born"], tree=TREE)
    assert json.loads(text) == {"id": 7, "photo": "AP8=", "born": "2024-10-04"}
    assert not is_bare


def test_the_parts_of_a_record_are_written_for_their_declared_types() -> None:
    """A time in milliseconds is a number only where `timestamp_ms` is declared."""
    at = {"type": "long", "logicalType": "timestamp-millis"}
    inner = {"type": "record", "name": "Inner", "fields": [{"name": "at", "type": at}]}
    parts = {
        "seen": inner,
        "times": {"type": "array", "items": at},
        "by": {"type": "map", "values": at},
    }
    fields = [{"name": name, "type": kind} for name, kind in parts.items()]
    schema = {"type": "record", "name": "Outer", "fields": fields}
    content = io.BytesIO()
    record = {"seen": {"at": 5}, "times": [6, 7], "by": {"a": 8}}
    fastavro.schemaless_writer(content, schema, record)
    tree: Tree = {
        "seen": {"at": field_type("timestamp_ms")},
        "times": field_type("array<timestamp_ms>"),
        "by": field_type("map<string, timestamp>"),
    }
    payload, avro_schema = content.getvalue(), Schema("AVRO", json.dumps(schema))
    text, _ = text_of(payload, avro_schema, [*tree], tree=tree)
    day = "1970-01-01T00:00:00.008000+00:00"
    assert json.loads(text) == {"seen": {"at": 5}, "times": [6, 7], "by": {"a": day}}


def test_a_bare_value_has_no_path() -> None:
    with pytest.raises(PayloadError, match="a bare INT32, but the topic declares 'n' at a path"):
        text_of(b"\x00\x00\x00\x07", Schema("INT32", ""), ["n"], tree={"a": ONE})


def test_a_primitive_becomes_the_only_value() -> None:
    text, is_bare = text_of(b"\x00\x00\x00\x07", Schema("INT32", ""), ["n"], tree=ONE)
    assert (text, is_bare) == ('{"n":7}', True)
    with pytest.raises(PayloadError, match="bare INT32, but the topic declares 2 fields"):
        text_of(b"\x00\x00\x00\x07", Schema("INT32", ""), ["n", "m"], tree=ONE)


@pytest.mark.parametrize(
    ("payload", "schema", "says"),
    [
        (b"\x01", AVRO, r"does not match its Avro schema \(EOFError\)"),
        (avro({"id": 1, "photo": b"", "born": 0}) + b"x", AVRO, "continues after its Avro record"),
        (b"\xff", Schema("JSON", ""), "is not valid UTF-8"),
        (b"123", Schema("INT64", ""), "is not a valid INT64"),
        (b"123", Schema("KEY_VALUE", ""), "has a schema of type KEY_VALUE, which silver cannot"),
        (b"123", Schema("AVRO", "no JSON"), r"does not match its Avro schema \(JSONDecodeError\)"),
    ],
)
def test_a_payload_that_does_not_match_its_schema_is_refused(
    payload: bytes, schema: Schema, says: str
) -> None:
    with pytest.raises(PayloadError, match=says):
        text_of(payload, schema, ["n"], tree=ONE)


def test_the_schema_of_a_version_must_be_known() -> None:
    assert schema_of({3: AVRO}, 3) is AVRO
    for version in (None, 4):
        with pytest.raises(PayloadError, match="the registry has no such version"):
            schema_of({3: AVRO}, version)


def test_reading_needs_no_spark() -> None:
    run = "import sys, silver.records.by_schema; sys.exit('pyspark' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", run], check=False).returncode == 0
