"""Tests that Protobuf messages are read by the descriptor in the registry."""

import datetime as dt
import json
from typing import Any

import pytest
from google.protobuf import descriptor_pb2
from google.protobuf.message import Message
from protobuf_files import definition, field, files, order

from lake.topics.field_type import field_type
from lake.topics.nested import Tree
from silver.records.by_schema import PayloadError, Schema, text_of

TREE: Tree = {
    "id": field_type("long"),
    "raw": field_type("binary"),
    "at": field_type("timestamp"),
    "sent": field_type("timestamp_ms"),
    "lines": field_type("array<struct<sku: string, at: timestamp>>"),
    "geo": {"lat": field_type("double")},
}


def schema(found: descriptor_pb2.FileDescriptorSet) -> Schema:
    return Schema("PROTOBUF_NATIVE", json.dumps(definition(found)))


def filled() -> Message:
    message = order(files())
    message.id, message.raw, message.level = -(2**62), b"\x00\xff", 1
    message.at.FromDatetime(dt.datetime(2026, 1, 5, 12, 30, 0, 250_001, dt.timezone.utc))
    message.sent.FromMilliseconds(1_767_616_200_123)
    line = message.lines.add(sku="a")
    line.at.FromSeconds(60)
    message.lines.add(sku="b")
    message.labels["x"], message.labels["y"] = 1, 0
    message.geo.lat = 52.5
    return message


def read(payload: bytes, found: Schema | None = None) -> Any:
    text, is_bare = text_of(payload, found or schema(files()), [*TREE], tree=TREE)
    assert not is_bare
    return json.loads(text)


def test_a_message_becomes_json_with_the_names_of_its_file() -> None:
    assert read(filled().SerializeToString()) == {
        "id": -(2**62),
        "raw": "AP8=",
        "at": "2026-01-05T12:30:00.250001+00:00",
        "sent": 1_767_616_200_123,
        "level": "HIGH",
        "lines": [{"sku": "a", "at": "1970-01-01T00:01:00+00:00"}, {"sku": "b"}],
        "labels": {"x": 1, "y": 0},
        "geo": {"lat": 52.5},
        "is_paid": False,
    }


def test_absent_fields_are_absent_and_others_have_their_default() -> None:
    """A field without `optional` cannot be absent in proto3. A message can."""
    found = read(order(files()).SerializeToString() + b"\x08\x07")
    assert found == {
        "id": 7,
        "raw": "",
        "level": "LOW",
        "lines": [],
        "labels": {},
        "is_paid": False,
    }
    with_note = order(files())
    with_note.note = ""
    assert read(with_note.SerializeToString())["note"] == ""


def test_a_timestamp_that_is_declared_as_a_struct_keeps_its_parts() -> None:
    tree: Tree = {"at": field_type("struct<seconds: long, nanos: int>")}
    text, _ = text_of(filled().SerializeToString(), schema(files()), ["at"], tree=tree)
    assert json.loads(text)["at"] == {"seconds": 1_767_616_200, "nanos": 250_001_000}


def test_a_later_version_has_its_own_descriptor() -> None:
    later = files()
    later.file[0].message_type[2].field.append(field("town", 11, "string"))
    message = order(later)
    message.town = "Oslo"
    assert read(message.SerializeToString(), schema(later))["town"] == "Oslo"
    with pytest.raises(PayloadError, match="has bytes that belong to no field of its Protobuf sch"):
        read(message.SerializeToString())


@pytest.mark.parametrize(
    ("payload", "says"),
    [
        (b"\xff\xff\xff", "does not match its Protobuf schema"),
        (b"\x0a\x05abc", "does not match its Protobuf schema"),
        (b'{"id": 7}', "does not match its Protobuf schema"),
        (b"\xa2\x06\x01a", "has bytes that belong to no field of its Protobuf schema"),
        (b"\x08\x07\x28\x09", "has the number 9 in 'level', which its enum does not define"),
        (b"\x4a\x02\x10\x01", "has bytes in 'geo' that belong to no field of its Protobuf schema"),
        (b"\x1a\x0c\x08\xff\xff\xff\xff\xff\xff\xff\xff\x7f\x10\x00", "has a time in 'at' that is"),
    ],
)
def test_wrong_bytes_are_refused_with_a_reason(payload: bytes, says: str) -> None:
    with pytest.raises(PayloadError, match=says):
        read(payload)


def test_the_older_type_is_refused_with_a_remedy() -> None:
    with pytest.raises(PayloadError, match="publish with PROTOBUF_NATIVE"):
        read(b"\x08\x07", Schema("PROTOBUF", "{}"))


def test_a_damaged_definition_stops_nothing() -> None:
    with pytest.raises(PayloadError, match=r"is unreadable \(KeyError\)"):
        read(b"\x08\x07", Schema("PROTOBUF_NATIVE", "{}"))
