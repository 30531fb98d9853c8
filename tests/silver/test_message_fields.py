"""Tests fields that come from the message itself: its key, times, topic and properties."""

import datetime as dt
import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from messages import json_message
from personal import SECRET
from pyspark.sql import SparkSession
from silver_lake import PUBLISHED, SilverLake
from topic import declared

from lake.tables.spec import bronze_table
from lakehouse.erasure.run import forget
from pulsar_spark.schema import ENVELOPE_DDL
from silver.quarantine import Selection, replay
from silver.rebuild import rebuild
from silver.records.decode import Decoder
from silver.records.payload import Schema

SENT = dt.datetime(2026, 1, 2, 3, 4, 5, 678000, tzinfo=dt.timezone.utc)
CANARY = "987654321987"
FULL = "persistent://public/default/t"
METADATA = """
of_key = { type = "string", required = false, from_message = "key" }
at = { type = "timestamp", required = false, from_message = "event_time" }
published = { type = "timestamp", from_message = "publish_time" }
origin = { type = "string", from_message = "topic" }
tenant = { type = "string", from_message = "properties.tenant" }
size = { type = "int", required = false, absent = -1, from_message = "properties.the size" }
price = { type = "decimal(6,2)", required = false, from_message = "properties.price" }
day = { type = "date", required = false, from_message = "properties.day" }
raw = { type = "binary", required = false, from_message = "properties.raw" }
"""


def message(entry: int, payload: bytes | None, **columns: Any) -> tuple[Any, ...]:
    row = {
        **{"topic": FULL, "partition": 0, "ledger": 1, "entry": entry, "batch_index": 0},
        **{"key": None, "payload": payload, "event_time": None, "publish_time": PUBLISHED},
        **{"order_time": None, "properties": {"tenant": "acme"}, "schema_version": None},
        **{"raw_key": None, "raw_properties": None, "undecoded": None},
    }
    return tuple((row | columns).values())


def decoded(
    spark: SparkSession,
    folder: Path,
    options: str,
    *rows: tuple[Any, ...],
    schemas: dict[int, Schema] | None = None,
) -> list[dict[str, Any]]:
    topic = declared(folder, f"[topics.t]\n{options}").topics["t"]
    found = Decoder(topic, schemas or {}).rows(spark.createDataFrame([*rows], ENVELOPE_DDL))
    return sorted(found.toArrow().to_pylist(), key=lambda row: row["position"]["entry"])


def test_each_part_of_a_message_can_be_a_field(spark: SparkSession, tmp_path: Path) -> None:
    options = f'kind = "events"\nkey = ["id"]\n[topics.t.fields]\nid = "long"\n{METADATA}'
    all_of_them = {"tenant": "", "the size": "12", "price": "1.005", "day": "2026-01-05"}
    in_payload = b'{"id":1,"tenant":"not this","of_key":"nor this","at":0,"size":"x"}'
    rows = decoded(
        *(spark, tmp_path, options),
        message(
            *(0, in_payload),
            key="a|b",
            event_time=SENT,
            properties={**all_of_them, "raw": "AP8=", "other": "é"},
        ),
        message(1, b'{"id":2}', properties={"tenant": "acme", "the size": "-1"}),
    )
    assert [row["_reason"] for row in rows] == [None, None]
    names = ("of_key", "at", "published", "origin", "tenant", "size", "price", "day", "raw")
    first, second = ({name: row[name] for name in names} for row in rows)
    assert first == {
        **{"of_key": "a|b", "at": SENT, "published": PUBLISHED, "origin": FULL, "tenant": ""},
        **{"size": 12, "price": Decimal("1.01"), "day": dt.date(2026, 1, 5)},
        "raw": b"\x00\xff",
    }
    nothing = dict.fromkeys(("of_key", "at", "size", "price", "day", "raw"))
    assert second == {"published": PUBLISHED, "origin": FULL, "tenant": "acme", **nothing}


def test_a_part_that_does_not_fit_is_rejected(spark: SparkSession, tmp_path: Path) -> None:
    options = f'kind = "events"\nkey = ["id"]\n[topics.t.fields]\nid = "long"\n{METADATA}'
    good = {"tenant": "acme"}
    cases: list[tuple[dict[str, Any], str | None]] = [
        ({}, None),
        ({"properties": {}}, "field 'tenant' is missing"),
        ({"properties": {**good, "the size": "1.0"}}, "field 'size' is not of type int"),
        ({"properties": {**good, "the size": ""}}, "field 'size' is not of type int"),
        ({"properties": {**good, "the size": "2147483648"}}, "field 'size' is not of type int"),
        ({"properties": {**good, "price": "1,5"}}, "field 'price' is not of type decimal(6,2)"),
        ({"properties": {**good, "day": "2026-1-5"}}, "field 'day' is not of type date"),
        ({"properties": {**good, "raw": "no!"}}, "field 'raw' is not of type binary"),
        # What bronze could not decode is not the same as nothing.
        ({"raw_key": b"\xff", "undecoded": "key"}, "field 'of_key' is not of type string"),
        ({"undecoded": "event_time 9999999999999999"}, "field 'at' is not of type timestamp"),
        (
            {"properties": {}, "raw_properties": [(b"tenant", b"\xff")], "undecoded": "properties"},
            "field 'tenant' is not of type string",
        ),
        ({"raw_properties": [(b"tenant", b"acme"), (b"x", b"\xff")]}, None),
    ]
    rows = [message(n, b'{"id":1}', **columns) for n, (columns, _) in enumerate(cases)]
    found = decoded(spark, tmp_path, options, *rows)
    assert [row["_reason"] for row in found] == [reason for _, reason in cases]


AVRO = Schema("AVRO", '{"type":"record","name":"r","fields":[{"name":"v","type":"string"}]}')


@pytest.mark.parametrize(
    ("schema", "value", "payload", "schemas"),
    [
        ("json", "string", b'{"v":"x"}', {}),
        pytest.param("string", "string", b"x", {}, marks=pytest.mark.nightly),
        ("bytes", "binary", b"x", {}),
        ("registry", "string", b"\x02x", {0: AVRO}),
        pytest.param(
            "registry", "string", b"x", {0: Schema("STRING", "")}, marks=pytest.mark.nightly
        ),
    ],
)
def test_the_message_key_can_be_the_key_of_each_kind_of_payload(
    spark: SparkSession,
    tmp_path: Path,
    schema: str,
    value: str,
    payload: bytes,
    schemas: dict[int, Schema],
) -> None:
    options = (
        f'kind = "changelog"\nschema = "{schema}"\nkey = ["id"]\n[topics.t.fields]\n'
        f'id = {{ type = "long", from_message = "key" }}\nv = "{value}"\n'
        'tenant = { type = "string", from_message = "properties.tenant" }'
    )
    version = {"schema_version": 0 if schemas else None}
    rows = decoded(
        *(spark, tmp_path, options),
        message(0, payload, key="7", **version),
        message(1, None, key="7", properties={}),
        message(2, payload, key="x", **version),
        message(3, payload, **version),
        message(4, payload, key="7", properties={}, **version),
        message(5, None, key="x"),
        schemas={(None, version): schema for version, schema in schemas.items()},
    )
    content = payload if value == "binary" else "x"
    assert [(r["id"], r["v"], r["tenant"], r["is_deleted"]) for r in rows[:2]] == [
        (7, content, "acme", False),
        (7, None, None, True),
    ]
    reasons = [row["_reason"] for row in rows]
    assert reasons[:2] == [None, None]
    assert all(reasons[2:])
    assert reasons[4] == "field 'tenant' is missing"


def test_a_property_can_delete_and_order_and_a_partial_update_keeps_what_it_lacks(
    spark: SparkSession, tmp_path: Path
) -> None:
    options = (
        'kind = "changelog"\nkey = ["id"]\nupdates = "partial"\nsequence = ["n"]\n'
        'delete = { field = "op", equals = "d" }\n[topics.t.fields]\nid = "long"\n'
        'n = { type = "long", from_message = "properties.n" }\n'
        'op = { type = "string", required = false, from_message = "properties.op" }\n'
        'a = { type = "int", required = false }'
    )
    rows = decoded(
        *(spark, tmp_path, options),
        message(0, b'{"id":1,"op":"d","n":5}', properties={"n": "1"}),
        message(1, b'{"id":1,"a":2}', properties={"n": "2", "op": "d"}),
        message(2, b'{"id":1}', properties={}),
    )
    assert [row["is_deleted"] for row in rows] == [False, True, False]
    assert [sorted(row["_present"]) for row in rows[:2]] == [["id", "n"], ["a", "id", "n", "op"]]
    assert [row["n"] for row in rows[:2]] == [1, 2]
    assert rows[2]["_reason"] == "field 'n' is missing"


PEOPLE = """
[topics.people]
kind = "changelog"
key = ["id"]
[topics.people.fields]
id = { type = "long", from_message = "key" }
name = { type = "string", personal = "keep", from_message = "properties.name" }
size = "int"

[topics.visits]
kind = "events"
key = ["id"]
[topics.visits.fields]
id = "long"
person = "long"
tenant = { type = "string", from_message = "properties.tenant" }
mail = { type = "string", required = false, personal = "keep", from_message = "properties.mail" }
[topics.visits.lookups]
visitor = { topic = "people", on = "person" }
"""


class Lakes(SilverLake):
    def send(self, topic: str, entry: int, key: str, payload: Any, **properties: str) -> None:
        row = message(
            *(entry, json.dumps(payload).encode()), key=key, properties=[*properties.items()]
        )
        names = [each.split(" ")[0] for each in ENVELOPE_DDL.split(", ")]
        self.lake.table(bronze_table(topic)).arrow.append([dict(zip(names, row, strict=True))])

    def visits(self) -> dict[int, Any]:
        rows = self.rows("enriched_visits")
        return {row["id"]: (row["tenant"], row["mail"], row["visitor"]) for row in rows}


@pytest.fixture
def lake(spark: SparkSession, tmp_path: Path) -> Lakes:
    lake = Lakes(spark, tmp_path, declared(tmp_path, PEOPLE))
    (tmp_path / "secret").write_text(SECRET)
    own = {"pseudonym_secret_file": tmp_path / "secret"}
    lake.settings = lake.settings.model_copy(update=own)
    return lake


def test_a_quarantined_message_is_replayed_with_its_properties(lake: Lakes) -> None:
    """The quarantine does not hold them: they are read from bronze."""
    lake.send("people", 0, "1", {"size": "x"}, name="Ada")
    lake.send("people", 1, "2", {"size": 2})
    lake.put([json_message("people", 2, 3, size=3)])
    lake.refine()
    assert {row["reason"] for row in lake.refused()} == {
        "field 'size' is not of type int",
        "field 'name' is missing",
    }
    changed = PEOPLE.replace('size = "int"', 'size = { type = "int", required = false }').replace(
        'personal = "keep", from_message = "properties.name"',
        'required = false, personal = "keep", from_message = "properties.name"',
    )
    lake.topics = declared(lake.settings.lake_dir, changed)
    assert replay(lake.spark, lake.lake, Selection())["applied"] == 2
    people = {row["id"]: (row["name"], row["size"]) for row in lake.rows("people_state")}
    assert people == {2: (None, 2), 3: (None, 3)}
    assert [row["key"] for row in lake.refused()] == ["1"]


@pytest.mark.nightly
def test_forgotten_people_leave_no_property_and_others_keep_theirs(lake: Lakes) -> None:
    name, mail = "Canary of Birds", "canary@birds.example.org"
    lake.send("people", 0, CANARY, {"size": 1}, name=name, note=name)
    lake.send("people", 1, "2", {"size": 2}, name="Grace")
    lake.send(
        "visits", 0, "x", {"id": 1, "person": int(CANARY)}, tenant="acme", mail=mail, note=name
    )
    lake.send("visits", 1, "x", {"id": 2, "person": 2}, tenant="acme", mail="grace@example.org")
    lake.send("visits", 2, "x", {"id": "odd", "person": 2}, tenant="acme", mail=name)
    lake.refine()
    proof = forget(lake.spark, lake.lake, CANARY, lambda *_: True, reason="asked")
    assert proof is not None
    assert not [part.where for part in proof.search() if part.found]
    visits = lake.visits()
    assert (visits[1][:2], visits[2][:2]) == (("acme", None), ("acme", "grace@example.org"))
    properties = {
        (topic, row["entry"]): dict(row["properties"])
        for topic in ("people", "visits")
        for row in lake.rows(topic, layer="bronze")
    }
    assert properties == {
        ("people", 0): {},
        ("people", 1): {"name": "Grace"},
        ("visits", 0): {"tenant": "acme"},
        ("visits", 1): {"tenant": "acme", "mail": "grace@example.org"},
        ("visits", 2): {},
    }
    before = lake.visits()
    rebuild(lake.spark, lake.lake)
    assert lake.visits() == before, "silver has what the rewritten messages say"
    assert lake.rows("people_state", "NOT is_deleted")[0]["name"] == "Grace"
