"""Tests that each element of an array becomes a row, and that messages stay whole."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from model import Message, Position
from pyspark.sql import SparkSession
from silver_lake import SilverLake
from topic import declared

from lake.topics.topic_file import TopicFile
from lakehouse.messages.encode import sent_fields
from pulsar_spark.errors import LakehouseError, SettingsError
from silver.contract.tables import enriched_table
from silver.quarantine import Selection, replay
from silver.rebuild import rebuild

TOPICS = """
[topics.people]
kind = "changelog"
key = ["id"]
fields = {{ id = "string", name = "string" }}

[topics.sales]
kind = "events"
key = ["saleId", "line"]
message_key = "saleId"
event_time = "soldAt"
explode = {{ path = "basket.lines", index = "line" }}
[topics.sales.fields]
saleId = "long"
line = "int"
soldAt = {{ type = "timestamp_ms", path = "meta.at" }}
buyer = {{ type = "string", required = false }}
shout = {{ type = "string", required = false, sql = "upper(buyer)" }}
articleNo = {{ type = "string", path = "basket.lines.article.no"{sku} }}
price = {{ type = "decimal(10,2)", path = "basket.lines.price", required = false }}
notes = {{ type = "array<string>", path = "basket.lines.notes", required = false }}
[topics.sales.lookups]
person = {{ topic = "people", on = "buyer" }}
"""
AT = 1_767_225_600_000


def sale(number: int, lines: Any, **more: Any) -> dict[str, Any]:
    return {"saleId": number, "meta": {"at": AT + number}, "basket": {"lines": lines}, **more}


def line(no: str | None, price: Any = None, **more: Any) -> dict[str, Any]:
    return {"article": {"no": no}, "price": price, **more}


SENT: list[Any] = [
    sale(1, [line("a", 1.005), line("b", "2", notes=["x", None])], buyer="p1"),
    sale(2, []),
    sale(3, None),
    {"saleId": 4, "meta": {"at": AT}},
    sale(5, [line("a"), line("b", "13,75")]),
    sale(6, [line("a"), None]),
    sale(7, [line("a", notes=[]), line(None)], buyer="p2"),
    sale(8, {"article": {"no": "a"}}),
    sale(9, [line("a", notes=["x", 5])]),
    sale(1, [line("c", 3)], buyer="p1"),  # a shorter array, sent later
    sale(10, [line("d")]),
    {"saleId": 11, "meta": 5, "basket": {"lines": [line("a")]}},
]
REASONS = {
    4: "field 'basket.lines' is not of type array<struct<article: struct<no: string>, "
    "price: decimal(10,2), notes: array<string>>>: basket.lines[1].price",
    5: "basket.lines[1] is null",
    6: "field 'articleNo' is missing: basket.lines[1]",
    7: "field 'basket.lines' is not of type array<struct<article: struct<no: string>, "
    "price: decimal(10,2), notes: array<string>>>",
    8: "field 'basket.lines' is not of type array<struct<article: struct<no: string>, "
    "price: decimal(10,2), notes: array<string>>>: basket.lines[0].notes[1]",
    11: "'meta' is no object",
}


def messages(first: int = 0) -> Iterator[Message]:
    for number, payload in enumerate(SENT):
        place = Position(1, first + number, 0, 0)
        yield Message("sales", place, None, json.dumps(payload).encode())


def rows(lake: SilverLake) -> dict[tuple[int, int], tuple[Any, ...]]:
    found = lake.rows("enriched_sales")
    names = ("article_no", "price", "notes", "shout")
    result = {
        (row["sale_id"], row["line"]): (
            row["position"].entry,
            *(row[name] if name != "price" else row[name] and str(row[name]) for name in names),
            row["person"] and row["person"]["name"],
        )
        for row in found
    }
    assert len(result) == len(found)
    return result


def audit(lake: SilverLake) -> dict[str, int]:
    columns = ("messages_in", "applied", "superseded", "quarantined", "waiting")
    return {name: lake.audited(name)["sales"] for name in columns}


def test_each_element_is_a_row_and_each_message_is_counted_once(
    spark: SparkSession, tmp_path: Path
) -> None:
    lake = SilverLake(spark, tmp_path / "lake", declared(tmp_path, TOPICS.format(sku="")))
    lake.put([*messages()][:9])
    lake.put([Message("people", Position(1, 0, 0, 0), "p1", b'{"id":"p1","name":"Ada"}')])
    lake.refine()
    first = {
        (1, 0): (0, "a", "1.01", None, "P1", "Ada"),
        (1, 1): (0, "b", "2.00", ["x", None], "P1", "Ada"),
    }
    assert rows(lake) == first
    assert audit(lake) == {
        "messages_in": 9,
        "applied": 1,
        "superseded": 3,  # they have no elements
        "quarantined": 5,
        "waiting": 0,
    }
    lake.put([*messages()][9:])
    lake.put([*messages(100)][:1])  # the first sale once more, later than its shorter array
    lake.refine()
    again = {
        (1, 0): (100, "a", "1.01", None, "P1", "Ada"),
        (1, 1): (100, "b", "2.00", ["x", None], "P1", "Ada"),
        (10, 0): (10, "d", None, None, None, None),
    }
    assert rows(lake) == again
    assert {row["position"].entry: row["reason"] for row in lake.refused()} == REASONS
    counts = audit(lake)
    assert counts["messages_in"] == 13
    assert counts["applied"] + counts["superseded"] + counts["quarantined"] == 13
    assert counts["quarantined"] == len(REASONS)

    # The whole message is applied when its element is accepted, with all of its elements.
    other = declared(tmp_path, TOPICS.format(sku=", required = false"))
    lake = SilverLake(spark, tmp_path / "lake", other)
    changed = replay(spark, lake.lake, Selection())
    assert changed == {"applied": 1, "superseded": 0, "quarantined": -1, "discarded": 0}
    assert rows(lake) == again | {
        (7, 0): (6, "a", None, [], "P2", None),
        (7, 1): (6, None, None, None, "P2", None),
    }
    assert not replay(spark, lake.lake, Selection())


@pytest.mark.nightly
def test_a_shorter_array_replaces_only_the_rows_that_it_has(
    spark: SparkSession, tmp_path: Path
) -> None:
    """The rows are the same in any order of arrival: each is of the latest message that has it."""
    for name, order in (("forward", [0, 9]), ("backward", [9, 0])):
        lake = SilverLake(spark, tmp_path / name, declared(tmp_path, TOPICS.format(sku="")))
        for number in order:
            lake.put([[*messages()][number]])
            lake.refine()
        assert rows(lake) == {
            (1, 0): (9, "c", "3.00", None, "P1", None),
            (1, 1): (0, "b", "2.00", ["x", None], "P1", None),
        }


def test_rows_from_before_would_need_a_number(spark: SparkSession, tmp_path: Path) -> None:
    before = """
    [topics.sales]
    kind = "events"
    key = ["saleId"]
    fields = { saleId = "long" }
    """
    old = declared(tmp_path, before)
    new = declared(tmp_path, TOPICS.format(sku=""))
    known = enriched_table(old.topics["sales"], old).struct()
    with pytest.raises(LakehouseError, match="'line' .* does not exist, and older rows would need"):
        enriched_table(new.topics["sales"], new).missing(known)


WORDS = """
[functions.words]
python = "own.text:words"
[topics.notes]
kind = "events"
key = ["id", "nr"]
message_key = "id"
explode = { function = "words", of = ["text", "tags"], index = "nr" }
[topics.notes.fields]
id = "long"
nr = "int"
text = { type = "string", required = false }
tags = { type = "array<string>", required = false }
word = { type = "string", path = "words.word" }
firstAt = { type = "timestamp", path = "words.where.first_at", required = false }
cost = { type = "decimal(5,2)", path = "words.where.cost", required = false }
"""
SPLIT = """
import datetime
from decimal import Decimal

def words(text, tags):
    if text == "none":
        return None
    found = [{"word": None if word == "-" else word} for word in text.split()]
    for word in found:
        if tags:
            at = datetime.datetime(2026, 1, 1, 12, len(tags), tzinfo=datetime.timezone.utc)
            word["where"] = {"first_at": at, "cost": Decimal(len(tags)) / 4}
    return found + [None] if text == "null" else found[0] if text == "one" else found
"""


def test_each_element_that_a_function_makes_is_a_row(spark: SparkSession, tmp_path: Path) -> None:
    def topics(source: str) -> TopicFile:
        (tmp_path / "own").mkdir(exist_ok=True)
        (tmp_path / "own" / "text.py").write_text(source)
        return declared(tmp_path, WORDS)

    lake = SilverLake(spark, tmp_path / "lake", topics(SPLIT))
    texts = ["a b a", "", None, "none", 5, "null", "x -", "one", "c", "many tags", "d e"]
    sent: list[Any] = [{"id": n, "text": text, "tags": []} for n, text in enumerate(texts)]
    sent[9]["tags"] = ["t"] * 99
    sent[10]["tags"] = ["t"] * 3
    sent.append({"id": 0, "text": "z", "tags": []})  # fewer words, sent later
    for n, each in enumerate(sent):
        payload = json.dumps(each).encode()
        lake.put([Message("notes", Position(1, n, 0, 0), None, payload)])
    lake.refine()

    def found() -> dict[tuple[int, int], tuple[Any, ...]]:
        names = ("word", "first_at", "cost")
        rows = lake.rows("enriched_notes")
        return {
            (row["id"], row["nr"]): tuple(str(row[n]) for n in names if row[n] is not None)
            for row in rows
        }

    three = ("2026-01-01 12:03:00+00:00", "0.75")
    expected = {
        **{(0, 0): ("z",), (0, 1): ("b",), (0, 2): ("a",), (8, 0): ("c",)},
        **{(10, 0): ("d", *three), (10, 1): ("e", *three)},
    }
    assert found() == expected
    raised = "the array to explode cannot be computed: words "
    assert {row["position"].entry: row["reason"] for row in lake.refused()} == {
        4: "field 'text' is not of type string",
        5: "words[1] is null",
        6: "field 'word' is missing: words[1]",
        7: f"{raised}returned a value of the type dict",
        9: f"{raised}raised ValueError in own/text.py, line 11",
    }
    columns = ("messages_in", "applied", "superseded", "quarantined")
    assert [lake.audited(name)["notes"] for name in columns] == [12, 4, 3, 5]

    # What the function made before belongs to the table until it is rebuilt.
    lake.topics = topics(SPLIT.replace('"-"', '"c"'))
    with pytest.raises(LakehouseError, match="The function of the field 'nr' has changed"):
        lake.refine()
    rebuild(spark, lake.lake)
    del expected[8, 0]
    assert found() == expected | {(6, 0): ("x",), (6, 1): ("-",)}


@pytest.mark.parametrize(
    ("was", "becomes", "says"),
    [
        ('"words", of', '"wrods", of', ":8: topics.notes.explode: 'wrods' is not declared in"),
        (', of = ["text", "tags"]', "", ":8: .*needs 'function' and 'of'"),
        ("index", 'path = "a", index', ":8: .*has 'path' and 'function', but the array comes"),
        ('function = "words", of = ["text", "tags"], ', "", ":8: .*needs 'path', .* or a 'func"),
        ('"tags"]', '"tags", "id"]', "has 3 arguments, but own.text:words takes 2"),
        ('"tags"]', '"word"]', "computes 'word' from 'word', which is in an element"),
        ('"string", path', '"timestamp_ms", path', "in rows of a function, which have no JSON"),
        ('text = { type = "string"', 'text = { type = "string", personal = "keep"', "is personal"),
        ('kind = "events"', 'kind = "changelog"', "only events can have 'explode'"),
    ],
)
def test_a_function_that_cannot_make_rows_is_refused(
    tmp_path: Path, was: str, becomes: str, says: str
) -> None:
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "text.py").write_text(SPLIT)
    assert was in WORDS
    with pytest.raises(SettingsError, match=says):
        declared(tmp_path, WORDS.replace(was, becomes, 1))


def test_elements_of_a_function_are_not_in_the_payload(tmp_path: Path) -> None:
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "text.py").write_text(SPLIT)
    topic = declared(tmp_path, WORDS).topics["notes"]
    assert [*topic.payload_fields] == sent_fields(topic) == ["id", "text", "tags"]
    assert [*topic.element_fields] == ["word", "firstAt", "cost"]
    assert topic.row_tree.keys() == {"id", "text", "tags"}
