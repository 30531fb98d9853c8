"""Tests how payloads are decoded and shown, with a registry that a test fills."""

import io
import json
from pathlib import Path
from typing import Any

import fastavro
import pytest
from topic import declared

from lake.settings.settings import LakeSettings
from lake.topics.topic import Topic
from lakehouse.messages.consume import Received
from lakehouse.messages.shown import Content, Decoder, instant
from pulsar_spark.offsets import Position

PERSON = {"type": "record", "name": "P", "fields": [{"name": "id", "type": "long"}]}
KINDS = ("json", "registry", "string", "bytes")


@pytest.fixture
def schemas(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """The versions of the schema in the registry, and a first one that nobody can read."""
    found: list[dict[str, Any]] = [
        {"version": 0, "type": "PROTOBUF"},
        {"version": 1, "type": "AVRO", "data": json.dumps(PERSON)},
    ]
    monkeypatch.setattr("lakehouse.messages.shown.PulsarAdmin.schemas", lambda *_: [*found])
    return found


def decoder(settings: LakeSettings, folder: Path, form: str) -> Decoder:
    kind = "binary" if form == "bytes" else "string"
    text = f'[topics.t]\nkind = "events"\nkey = ["k"]\nschema = "{form}"\n'
    topic: Topic = declared(folder, text + f'fields = {{ k = "long", v = "{kind}" }}').topics["t"]
    return Decoder(settings, settings.full_topic("t"), topic)


def avro() -> bytes:
    content = io.BytesIO()
    fastavro.schemaless_writer(content, PERSON, {"id": 1234567})
    return content.getvalue()


AVRO = avro()


@pytest.mark.parametrize(
    ("form", "payload", "version", "expected"),
    [
        ("json", b'{"a":\n1.50}', None, Content("json", '{"a": 1.50}')),
        ("json", b'{"a": 1}', 0, Content("json", '{"a": 1}')),
        ("json", b"half {", None, Content("text", "half {")),
        ("json", b"NaN", None, Content("text", "NaN")),
        ("json", b"\xff", None, Content("base64", "/w==")),
        ("json", AVRO, 1, Content("json", '{"id":1234567}')),
        ("registry", AVRO, 1, Content("json", '{"id":1234567}')),
        ("registry", b"{}", None, Content("json", "{}", "published without a schema")),
        ("string", b"hello", None, Content("text", "hello")),
        ("string", b"\xff", None, Content("base64", "/w==")),
        ("bytes", b"{}", None, Content("base64", "e30=")),
    ],
)
def test_a_payload_is_json_if_it_can_be_read_else_text_else_base64(
    settings: LakeSettings,
    tmp_path: Path,
    schemas: object,
    form: str,
    payload: bytes,
    version: int | None,
    expected: Content,
) -> None:
    assert decoder(settings, tmp_path, form).content(payload, version) == expected


def test_a_schema_that_cannot_be_read_is_named(
    settings: LakeSettings, tmp_path: Path, schemas: list[dict[str, Any]]
) -> None:
    found = decoder(settings, tmp_path, "registry")
    for payload, version, says in (
        (b"\xff\x00", 0, "schema version 0: the payload has a schema of type PROTOBUF"),
        (b"\xff", 1, "schema version 1: the payload does not match its Avro schema"),
        (b"\xff\x00", 2, "schema version 2: the payload cannot be read: the registry has no such"),
    ):
        content = found.content(payload, version)
        assert content.form == "base64"
        assert content.note.startswith(says)
    schemas.append({"version": 2, "type": "STRING"})
    assert found.content(b"new", 2) == Content("json", '{"v":"new"}')


def test_a_topic_that_is_not_declared_is_decoded_as_well(
    settings: LakeSettings, schemas: list[dict[str, Any]]
) -> None:
    schemas.append({"version": 2, "type": "INT32"})
    found = Decoder(settings, settings.full_topic("t"), None)
    assert found.content(b"{}", None) == Content("json", "{}")
    assert found.content(b"\x00\x00\x00\x07", 2) == Content("json", '{"value":7}')


def test_a_message_is_a_row_of_a_table_or_a_line_of_json(settings: LakeSettings) -> None:
    found = Decoder(settings, settings.full_topic("t"), None)
    message = Received(2, Position(7, 8, 0), "k", 1_767_323_045_678, 1_000, b'{"a":\n1.50}', None)
    times = "2026-01-02 03:04:05.678", "1970-01-01 00:00:01.000"
    assert found.cells(message) == ["2", "k", *times, '{"a": 1.50}']
    assert found.line(message) == (
        '{"partition": 2, "position": "7:8:0", "key": "k", '
        '"publish_time": "2026-01-02T03:04:05.678+00:00", '
        '"event_time": "1970-01-01T00:00:01.000+00:00", "payload": {"a": 1.50}}'
    )
    nothing = message._replace(partition=-1, key=None, event_ms=None, payload=None)
    assert found.cells(nothing) == ["", "", times[0], "", "(tombstone)"]
    assert json.loads(found.line(nothing))["payload"] is None
    text = json.loads(found.line(message._replace(payload=b"a\nb")))
    assert (text["payload"], text["encoding"]) == ("a\nb", "text")


def test_an_instant_beyond_the_calendar_is_a_number() -> None:
    assert instant(10**17) == str(10**17)
