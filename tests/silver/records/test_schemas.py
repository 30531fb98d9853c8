"""Tests payloads read by the topic's schema: Avro in several versions, primitives, bare values."""

import datetime as dt
import json
import struct
from decimal import Decimal
from pathlib import Path
from typing import Any

import pulsar
import pytest
from _pulsar import SchemaType
from java_client import JavaClient
from protobuf_files import definition, field, files, order
from pyspark.sql import SparkSession
from registry import Raw, avro, record
from shop_lake import ShopLake
from topic import declared

from lake.settings.settings import LakeSettings
from lake.tables.lake import Lake
from lakehouse.messages.publish import create_topics
from lakehouse.runtime.broker import Broker
from pulsar_spark.broker.admin import PulsarAdmin
from pulsar_spark.errors import LakehouseError
from silver.contract.evolved import evolved
from silver.contract.tables import PERSONAL, enriched_table
from silver.records.masking import protection

TOPICS = """
[topics.people]
kind = "changelog"
key = ["id"]
schema = "registry"
delete = { field = "op", equals = "d" }
[topics.people.fields]
id = "long"
op = { type = "string", required = false }
score = { type = "long", required = false }
city = { type = "string", required = false }
balance = { type = "decimal(12,2)", required = false }
since = { type = "timestamp_ms", required = false }
born = { type = "date", required = false }
photo = { type = "binary", required = false }

[topics.pets]
kind = "events"
key = ["id"]
schema = "registry"
evolve = "add"
[topics.pets.fields]
id = "long"
owner = "long"
[topics.pets.lookups]
person = { topic = "people", on = "owner" }

[topics.colours]
kind = "changelog"
key = ["shop", "user"]
schema = "registry"
delete = "never"
[topics.colours.fields]
shop = "string"
user = "int"
colour = "string"

[topics.readings]
kind = "changelog"
key = ["sensor"]
schema = "registry"
[topics.readings.fields]
sensor = "string"
celsius = "double"

[topics.documents]
kind = "changelog"
key = ["name"]
schema = "bytes"
[topics.documents.fields]
name = "string"
content = "binary"

[topics.notes]
kind = "changelog"
key = ["name"]
schema = "string"
[topics.notes.fields]
name = "string"
note = "string"
"""

PARCELS = """
[topics.parcels]
kind = "events"
key = ["id"]
schema = "registry"
event_time = "at"
[topics.parcels.fields]
id = "long"
at = "timestamp"
level = "string"
latitude = { type = "double", required = false, path = "geo.lat" }
lines = "array<struct<sku: string, at: timestamp>>"
labels = "map<string, int>"
note = { type = "string", required = false }
town = { type = "string", required = false }
"""

BORN, SINCE = dt.date(1815, 12, 10), dt.datetime(2026, 1, 2, 3, 4, 5, 6000, dt.timezone.utc)


MONEY = {"type": "bytes", "logicalType": "decimal", "precision": 12, "scale": 3}
VERSIONS = [
    record(id="int", score="int"),
    record(id="int", score="int", city=["null", "string"], op=["null", "string"]),
    record(
        id="long",
        score=["null", "long"],
        city=["null", "string"],
        balance=MONEY,
        since={"type": "long", "logicalType": "timestamp-micros"},
        born={"type": "int", "logicalType": "date"},
        photo="bytes",
    ),
    record(id="long", op="string"),
    record(id="string", score="double"),
]


class Registered(ShopLake):
    """A lake whose topics have schemas in the broker's registry."""

    def send(
        self, topic: str, key: str, payload: bytes, kind: Any = None, definition: Any = None
    ) -> None:
        client = self.settings.connection.client()
        try:
            name = self.settings.full_topic(topic)
            schema = pulsar.schema.BytesSchema() if kind is None else Raw(kind, definition)
            client.create_producer(name, schema=schema).send(payload, partition_key=key)
        finally:
            client.close()

    def send_primitive(
        self, java: JavaClient, topic: str, key: str, payload: bytes, kind: str
    ) -> None:
        """Send as the Java client does; the Python client does not register such a schema."""
        schema = {"type": kind, "schema": "", "properties": {}}
        path = f"{self.settings.pulsar_namespace}/{topic}"
        with self.settings.connection.http(10) as http:
            http.post(f"schemas/{path}/schema", json=schema).raise_for_status()
        producer = java.producer(self.settings.full_topic(topic), checked=True)
        producer.newMessage().key(key).value(payload).send()
        producer.close()

    def person(self, version: int, **fields: Any) -> None:
        schema = VERSIONS[version]
        self.send("people", str(fields["id"]), avro(schema, fields), SchemaType.AVRO, schema)

    def pet(self, **fields: Any) -> None:
        added = {name: ["null", "string"] for name in fields if name not in ("id", "owner")}
        schema = record(id="long", owner="long", **added)
        self.send("pets", str(fields["id"]), avro(schema, fields), SchemaType.AVRO, schema)

    def by_key(self, topic: str) -> dict[Any, dict[str, Any]]:
        key = next(iter(self.topics.topics[topic].fields))
        return {row[key]: row for row in self.rows(f"{topic}_state")}

    def reasons(self, topic: str) -> dict[str, str]:
        rows = self.rows("quarantine", f"topic = '{topic}'")
        return {row["key"]: row["reason"] for row in rows}


def registered(
    spark: SparkSession, settings: LakeSettings, folder: Path, topics: str
) -> Registered:
    lake = Registered(spark, settings, declared(folder, topics))
    create_topics(Lake(settings, lake.topics))
    with settings.connection.http(10) as http:  # the default would refuse to widen a field
        path = f"namespaces/{settings.pulsar_namespace}/schemaCompatibilityStrategy"
        http.put(path, json="ALWAYS_COMPATIBLE").raise_for_status()
    return lake


@pytest.fixture
def lake(spark: SparkSession, broker: Broker, settings: LakeSettings, tmp_path: Path) -> Registered:
    return registered(spark, settings, tmp_path, TOPICS)


def test_protobuf_versions_may_add_fields_mid_stream(
    spark: SparkSession, broker: Broker, settings: LakeSettings, tmp_path: Path
) -> None:
    lake = registered(spark, settings, tmp_path, PARCELS)
    later = files()
    later.file[0].message_type[2].field.append(field("town", 11, "string"))
    for number, version in enumerate((files(), later), start=1):
        message = order(version)
        message.id, message.level = number, 1
        message.at.FromSeconds(60)
        message.geo.lat = 52.5
        message.labels["x"] = number
        message.lines.add(sku="a").at.FromSeconds(1)
        if number == 2:
            message.town = "Oslo"
        sent = definition(version)
        kind = SchemaType.PROTOBUF_NATIVE
        lake.send("parcels", str(number), message.SerializeToString(), kind, sent)
        lake.send("parcels", "broken", b"\xff\xff", kind, sent)
    lake.catch_up()
    rows = {row["id"]: row for row in lake.rows("enriched_parcels")}
    at = [dt.datetime.fromtimestamp(n, dt.timezone.utc) for n in (1, 60)]
    for number, row in rows.items():
        found = {name: row[name] for name in ("at", "level", "latitude", "note", "town", "lines")}
        assert dict(row["labels"]) == {"x": number}
        assert found == {
            **{"at": at[1], "level": "HIGH", "latitude": 52.5, "note": None},
            **{"town": "Oslo" if number == 2 else None, "lines": [{"sku": "a", "at": at[0]}]},
        }
    assert rows.keys() == {1, 2}
    assert "does not match its Protobuf schema" in lake.reasons("parcels")["broken"]


def test_avro_versions_may_add_drop_and_widen_fields_mid_stream(
    lake: Registered, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake.person(0, id=1, score=10)
    lake.person(1, id=2, score=20, city="Turin", op=None)
    lake.pet(id=1, owner=1)
    lake.catch_up()
    lake.pet(id=2, owner=2, nick="Rex")
    wide = {"score": 2**40, "city": None, "balance": Decimal("13.755"), "photo": b"\x00\xff"}
    lake.person(2, id=2**40, since=SINCE, born=BORN, **wide)
    lake.person(0, id=3, score=30)
    lake.person(3, id=1, op="d")
    lake.person(4, id="x", score=0.5)
    lake.send("people", "torn", b"\x02", SchemaType.AVRO, VERSIONS[1])
    long = avro(VERSIONS[0], {"id": 4, "score": 4}) + b"\x00"
    lake.send("people", "long", long, SchemaType.AVRO, VERSIONS[0])
    lake.send("people", "no schema", b"{}")
    lake.catch_up()
    people = lake.by_key("people")
    assert {key: row["is_deleted"] for key, row in people.items()} == {
        **{1: True, 2: False, 3: False, 2**40: False}
    }
    assert [people[key]["score"] for key in (2, 3, 2**40)] == [20, 30, 2**40]
    assert [people[key]["city"] for key in (2, 3, 2**40)] == ["Turin", None, None]
    last = people[2**40]
    assert last["balance"] == Decimal("13.76")
    assert last["since"].astimezone(dt.timezone.utc) == SINCE
    assert (last["born"], bytes(last["photo"])) == (BORN, b"\x00\xff")
    assert lake.reasons("people") == {
        "x": "field 'id' is not of type long",
        "torn": "payload of schema version 1 does not match its Avro schema (EOFError)",
        "long": "payload of schema version 0 continues after its Avro record",
        "no schema": "payload of schema version None cannot be read: the registry has no such "
        "version of the topic's schema",
    }
    # The first pet stays as it was, and its batch shows that it was not written again.
    pets = {row["id"]: row for row in lake.rows("enriched_pets")}
    assert {key: (row["nick"], row["person"]["score"]) for key, row in pets.items()} == {
        **{1: (None, 10), 2: ("Rex", 20)}
    }
    assert pets[1]["silver_batch"] < pets[2]["silver_batch"]
    # Bronze has the bytes and silver has the schemas, so nothing depends on the registry any more.
    lake.person(1, id=5, score=50, city="Como", op=None)
    monkeypatch.setattr(PulsarAdmin, "schemas", lambda *_: [])
    lake.catch_up()
    assert lake.by_key("people")[5]["city"] == "Como"
    known = Lake(lake.settings, lake.topics)
    assert {*evolved(known).topics.topics["pets"].fields} == {"id", "owner", "nick"}
    assert protection(known) == {}, "gold is not rebuilt"
    personal = known.table(enriched_table(lake.topics.topics["pets"], lake.topics)).arrow
    assert json.loads(str(personal.configuration(PERSONAL))) == {"nick": "mask"}
    lake.person(1, id=6, score=60, city="Bari", op=None)
    other = {"version": 1, "type": "STRING", "data": ""}
    monkeypatch.setattr(PulsarAdmin, "schemas", lambda *_: [other])
    with pytest.raises(LakehouseError, match="Version 1 of the schema of people differs"):
        lake.catch_up()


@pytest.mark.nightly
def test_bare_values_have_their_key_in_the_message_key(lake: Registered, java: JavaClient) -> None:
    lake.send("colours", "x|7", b"red", SchemaType.STRING)
    lake.send("colours", "x|8", b"\xff", SchemaType.STRING)
    lake.send("colours", "x", b"blue", SchemaType.STRING)
    lake.send("colours", "x|many", b"blue", SchemaType.STRING)
    lake.send("colours", "y|7", b"", SchemaType.STRING)
    spare = json.dumps({"shop": "z", "user": 9, "colour": "green"}).encode()
    lake.send("colours", "any", spare, SchemaType.JSON, record(shop="string"))
    for sensor, form, reading, kind in [
        ("a", ">d", -0.5, "DOUBLE"),
        ("f", ">d", 1.0, "DOUBLE"),
        ("b", ">f", 1.5, "FLOAT"),
        ("c", ">q", -(2**40), "INT64"),
        ("d", ">h", 300, "INT16"),
        ("e", ">?", True, "BOOLEAN"),
    ]:
        lake.send_primitive(java, "readings", sensor, struct.pack(form, reading), kind)
    lake.send("readings", "f", b"")
    lake.send("documents", "logo", b"\x00\xff")
    lake.send("notes", "today", 'say "ja" zu Käse'.encode())
    lake.send("notes", "never", b"\xff")
    lake.catch_up()
    colours = {(r["shop"], r["user"]): r["colour"] for r in lake.rows("colours_state")}
    assert colours == {("x", 7): "red", ("z", 9): "green"}
    assert lake.reasons("colours") == {
        "x|8": "payload of schema version 0 is not a valid STRING",
        "x": "the message key does not have the form 'shop|user'",
        "x|many": "part 'user' of the message key is not of type int",
        "y|7": "payload is empty",
    }
    readings = lake.by_key("readings")
    assert {key: row["celsius"] for key, row in readings.items()} == {
        **{"a": -0.5, "b": 1.5, "c": -(2.0**40), "d": 300.0, "f": None}
    }
    assert [key for key, row in readings.items() if row["is_deleted"]] == ["f"]
    assert lake.reasons("readings") == {"e": "field 'celsius' is not of type double"}
    assert lake.by_key("documents")["logo"]["content"] == b"\x00\xff"
    assert lake.by_key("notes")["today"]["note"] == 'say "ja" zu Käse'
    assert lake.reasons("notes") == {"never": "payload is not valid UTF-8"}
