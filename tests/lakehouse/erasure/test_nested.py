"""Tests that erasure reaches nested members: keys, personal fields and what is not declared."""

import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from model import Message, Position
from personal import SECRET
from pyspark.sql import SparkSession
from silver_lake import SilverLake
from topic import declared

from lake.settings.settings import load_settings
from lake.tables.lake import Lake
from lakehouse.erasure.run import forget
from silver.rebuild import rebuild
from silver.records.pseudonymize import pseudonym

TOPICS = """
[topics.people]
kind = "changelog"
key = ["personId"]
merged_into = "into"
[topics.people.fields]
personId = { type = "string", path = "person.id" }
into = { type = "string", path = "person.links.into", required = false }
email = { type = "string", path = "person.contact.email", personal = "mask", required = false }
tel = { type = "array<string>", path = "person.contact.tel", personal = "keep", required = false }
names = { type = "map<string, string>", path = "person.names", personal = "keep", required = false }

[topics.visits]
kind = "events"
key = ["id"]
[topics.visits.fields]
id = "long"
visitor = { type = "string", path = "by.person" }
note = { type = "string", path = "by.note", personal = "keep", required = false }
place = "struct<city: string, parts: array<struct<no: long>>>"
[topics.visits.lookups]
person = { topic = "people", on = "visitor" }

[topics.sales]
kind = "events"
key = ["id", "line"]
explode = { path = "basket.lines", index = "line" }
[topics.sales.fields]
id = "long"
line = "int"
buyer = { type = "string", path = "basket.buyer" }
sku = { type = "string", path = "basket.lines.sku" }
gift = { type = "string", path = "basket.lines.gift", personal = "mask", required = false }
[topics.sales.lookups]
person = { topic = "people", on = "buyer" }
"""
WHO, OTHER = "canary-0001", "p-2"
TRACES = (b"canary", b"+49-555-000")
PERSON = {
    "id": WHO,
    "contact": {"email": "canary@example.org", "tel": ["+49-555-0001", "+49-555-0002"]},
    "names": {"canary nickname": "canary bird"},
}


def sent() -> list[Message]:
    payloads: list[tuple[str, Any]] = [
        ("people", {"person": PERSON}),
        ("people", {"person": {"id": OTHER, "links": {"into": WHO}, "more": {"of": "canary"}}}),
        ("people", {"person": {"id": OTHER, "contact": {"email": "other@example.org"}}}),
        ("visits", visit(1, WHO, note="canary was here", more="canary")),
        ("visits", visit(2, OTHER, note="other was here")),
        ("visits", {**visit(3, WHO), "place": "of canary"}),  # rejected
        ("sales", sale(1, WHO, "canary")),
        ("sales", sale(2, OTHER, "other")),
    ]
    return [
        Message(topic, Position(1, number, 0, 0), None, json.dumps(payload).encode())
        for number, (topic, payload) in enumerate(payloads)
    ]


def visit(number: int, who: str, **more: Any) -> dict[str, Any]:
    parts = [{"no": 1, "of": who}]
    place = {"city": "Lyon", "parts": parts, "guide": who}
    return {"id": number, "by": {"person": who, **more}, "place": place}


def sale(number: int, who: str, gift: str) -> dict[str, Any]:
    lines = [{"sku": "a", "gift": f"for {gift}", "more": gift}, {"sku": "b"}]
    return {"id": number, "basket": {"buyer": who, "lines": lines, "for": gift}}


def test_a_person_is_gone_from_all_nested_members(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text(SECRET)
    lake = SilverLake(spark, load_settings(home=tmp_path / "home"), declared(tmp_path, TOPICS))
    own = {"pseudonym_secret_file": tmp_path / "secret"}
    lake.settings = lake.settings.model_copy(update=own)
    lake.put(sent())
    lake.refine()
    assert traces(lake) == ["bronze", "silver"]
    proof = forget(spark, lake.lake, WHO, lambda *_: True, reason="asked for")
    assert proof is not None
    assert {"email", "tel", "names"} <= {*proof.values}
    assert traces(lake) == []
    assert [part.found for part in proof.search() if part.found] == []

    people = lake.topics.topics["people"]
    gone = pseudonym(SECRET.encode(), people, WHO)
    payloads = {
        (row["topic"].rpartition("/")[2], row["entry"]): row["payload"]
        and json.loads(row["payload"])
        for name in ("people", "visits", "sales")
        for row in lake.rows(name, layer="bronze")
    }
    assert payloads["people", 0] is None
    assert payloads["people", 1] == {"person": {"id": OTHER, "links": {"into": gone}}}
    assert payloads["visits", 3] == {
        "id": 1,
        "by": {"person": gone},
        "place": {"city": "Lyon", "parts": [{"no": 1}]},
    }
    assert payloads["visits", 5] is None, "a rejected message loses its payload"
    lines = [{"sku": "a"}, {"sku": "b"}]
    assert payloads["sales", 6] == {"id": 1, "basket": {"buyer": gone, "lines": lines}}
    state = contents(lake)
    assert [row for row in state["enriched_sales"] if row[1] == gone] == [
        (1, gone, "a", None),
        (1, gone, "b", None),
    ]
    rebuild(spark, Lake(lake.settings, lake.topics))
    assert contents(lake) == state, "a rebuilt silver has the same contents"
    assert traces(lake) == []


def traces(lake: SilverLake) -> list[str]:
    """Return the layers that contain data of the person, raw or decoded."""
    found = set()
    for file in lake.settings.lake_dir.rglob("*"):
        if not file.is_file():
            continue
        texts = [file.read_bytes()]
        if file.suffix == ".parquet":
            texts.append(str(pq.ParquetFile(file).read().to_pylist()).encode())
        if any(trace in text for trace in TRACES for text in texts):
            found.add(file.relative_to(lake.settings.lake_dir).parts[0])
    return sorted(found)


def contents(lake: SilverLake) -> dict[str, list[tuple[Any, ...]]]:
    """Return silver's rows without the columns of a batch or a version."""
    columns = {
        "people_state": ("person_id", "into", "email", "tel", "resolved_id", "is_deleted"),
        "enriched_visits": ("id", "visitor", "note", "place"),
        "enriched_sales": ("id", "buyer", "sku", "gift"),
    }
    return {
        name: sorted((tuple(row[each] for each in names) for row in lake.rows(name)), key=str)
        for name, names in columns.items()
    }
