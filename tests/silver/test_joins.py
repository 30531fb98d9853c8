"""Tests that interval joins hold what the events give, in whatever order these arrive."""

import datetime as dt
import json
import random
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import duckdb
import pytest
from joins_model import joined
from messages import json_message, message
from model import Message
from pyspark.sql import SparkSession
from silver_lake import SilverLake
from structlog.testing import capture_logs
from topic import declared

from lake.observe.metrics import MISSING
from lake.topics.topic import View
from lake.topics.topic_file import TopicFile, load_topics
from lakehouse.messages.publish import messages
from lakehouse.operate.status import lake_status
from pulsar_spark.errors import SettingsError
from silver.contract.tables import view_table
from silver.materialized import MOST_ROWS
from silver.metrics import silver_collector
from silver.rebuild import rebuild
from silver.views import create_views

CLICKS = Path(__file__).resolve().parents[2] / "examples" / "clicks"

DECLARED = """
[topics.calls]
kind = "events"
key = ["id"]
event_time = "at"
[topics.calls.fields]
id = "int"
who = { type = "string", required = false }
place = "int"
kind = "string"
at = "timestamp_ms"

[topics.answers]
kind = "events"
key = ["place", "nr"]
event_time = "givenAt"
[topics.answers.fields]
place = "int"
nr = "int"
who = { type = "string", required = false }
score = { type = "int", required = false }
givenAt = "timestamp_ms"
"""
JOINS = """
[joins.answered]
left = "calls"
right = "answers"
on = { who = "who" }
within = { before = "10 seconds", after = "1 minute" }

[joins.first_answer]
left = "calls"
right = "answers"
on = { who = "who", place = "place" }
within = { after = "2 minutes" }
match = "first"

[joins.last_call]
left = "answers"
right = "calls"
prefix = "lastCall"
on = { place = "place" }
within = { before = "1 hour" }
match = "last"
left_where = "score > 0 OR score IS NULL"

[joins.call_backs]
left = "calls"
right = "calls"
prefix = "back"
on = { id = "place" }
within = { before = "500 milliseconds", after = "30 minutes" }
left_where = "kind = 'out' -- by us"
right_where = "kind = 'back'"

[views.answers_per_call]
description = "Reads a join"
key = ["id"]
columns = { id = "int", answers = "bigint" }
sql = "SELECT id, count(answers_nr) AS answers FROM answered GROUP BY id"
"""

BEGIN = 1_800_000_000_000
Event = dict[str, Any]


def sample(chance: random.Random, entry: int) -> Message:
    """Return a call or an answer of few people and places, or a changed resend of one.

    Times are whole half minutes, so that many are at the bounds of the intervals, and some are days
    before or after the others.
    """
    who = chance.choice(["ada", "bob", None])
    at = (
        BEGIN
        + 30_000 * chance.randrange(20)
        + chance.choice([0] * 8 + [10, 86_400_000, -9 * 10**8])
    )
    if chance.random() < 0.5:
        call = {"id": chance.randrange(25), "who": who, "place": chance.randrange(4)}
        return json_message("calls", entry, **call, kind=chance.choice(["out", "back"]), at=at)
    answer = {"place": chance.randrange(4), "nr": chance.randrange(8), "who": who}
    key = f"{answer['place']}|{answer['nr']}"
    score = chance.choice([None, 0, 1])
    return json_message("answers", entry, key, **answer, score=score, givenAt=at)


def instant(millis: int) -> dt.datetime:
    return dt.datetime(1970, 1, 1, tzinfo=dt.timezone.utc) + dt.timedelta(milliseconds=millis)


def latest(sent: Iterable[Message]) -> tuple[list[Event], list[Event]]:
    """Return the calls and the answers, each with the fields of the last message of its key."""
    found: dict[str, dict[str, Event]] = {"calls": {}, "answers": {}}
    for m in sorted(sent, key=lambda m: m.position):
        fields = json.loads(m.payload or b"")
        time = fields.pop("at" if m.topic == "calls" else "givenAt")
        found[m.topic][str(m.key)] = {**fields, "at": instant(time)}
    return list(found["calls"].values()), list(found["answers"].values())


def expected(sent: Iterable[Message]) -> dict[str, dict[tuple[Any, ...], tuple[Any, ...]]]:
    """Return the rows of each join, by key: the times of both events."""
    calls, answers = latest(sent)
    second, minute = dt.timedelta(seconds=1), dt.timedelta(minutes=1)

    def of_call(call: Event | None) -> tuple[Any, ...]:
        return (call["id"],) if call else (None,)

    def of_answer(answer: Event | None) -> tuple[Any, ...]:
        return (answer["place"], answer["nr"]) if answer else (None, None)

    def same(*names: str) -> Any:
        return lambda a, b: all(a[n] is not None and a[n] == b[n] for n in names)

    def times(a: Event, b: Event | None) -> tuple[Any, ...]:
        return a["at"], b and b["at"]

    def at(event: Event) -> dt.datetime:
        found: dt.datetime = event["at"]
        return found

    scored = [each for each in answers if each["score"] is None or each["score"] > 0]
    out = [each for each in calls if each["kind"] == "out"]
    back = [each for each in calls if each["kind"] == "back"]
    none = dt.timedelta(0)
    return {
        "answered": {
            of_call(a) + of_answer(b): times(a, b)
            for a, b in joined(
                *(calls, answers), fits=same("who"), at=at, key=of_answer,
                before=10 * second, after=minute, match="all",
            )
        },
        "first_answer": {
            of_call(a): times(a, b) + of_answer(b)
            for a, b in joined(
                *(calls, answers), fits=same("who", "place"), at=at, key=of_answer,
                before=none, after=2 * minute, match="first",
            )
        },
        "last_call": {
            of_answer(a): times(a, b) + of_call(b)
            for a, b in joined(
                *(scored, calls), fits=same("place"), at=at, key=of_call,
                before=60 * minute, after=none, match="last",
            )
        },
        "call_backs": {
            of_call(a) + of_call(b): times(a, b)
            for a, b in joined(
                *(out, back), fits=lambda a, b: a["id"] == b["place"], at=at, key=of_call,
                before=second / 2, after=30 * minute, match="all",
            )
        },
    }  # fmt: skip


COLUMNS = {
    "answered": (("id", "answers_place", "answers_nr"), ("at", "answers_given_at")),
    "first_answer": (("id",), ("at", "answers_given_at", "answers_place", "answers_nr")),
    "last_call": (("place", "nr"), ("given_at", "last_call_at", "last_call_id")),
    "call_backs": (("id", "back_id"), ("at", "back_at")),
}


def kept(lake: SilverLake, name: str) -> dict[tuple[Any, ...], tuple[Any, ...]]:
    key, values = COLUMNS[name]
    rows = lake.rows(name)
    found = {tuple(row[n] for n in key): tuple(row[n] for n in values) for row in rows}
    assert len(found) == len(rows), f"{name} has a key twice"
    return found


def assert_right(lake: SilverLake, sent: list[Message]) -> None:
    for name, rows in expected(sent).items():
        if name in lake.topics.joins:
            assert kept(lake, name) == rows, name
    if "answers_per_call" not in lake.topics.views:
        return
    counted: dict[int, int] = {}
    for call, place, _ in expected(sent)["answered"]:
        counted[call] = counted.get(call, 0) + (place is not None)
    assert {row["id"]: row["answers"] for row in lake.rows("answers_per_call")} == counted


# The others take minutes.
FEW_JOINS = JOINS[JOINS.index("[joins.first_answer]") : JOINS.index("[joins.last_call]")]


@pytest.mark.parametrize(
    ("seed", "joins"),
    [(1, FEW_JOINS), *(pytest.param(n, JOINS, marks=pytest.mark.nightly) for n in range(2, 5))],
)
def test_any_order_of_arrival_gives_the_same_joins(
    spark: SparkSession, tmp_path: Path, seed: int, joins: str
) -> None:
    """Each `refine` is a start of silver: first all rows are computed, then those affected."""
    chance = random.Random(seed)
    sent = [sample(chance, entry) for entry in range(90)]
    chance.shuffle(sent)
    lake = SilverLake(spark, tmp_path, declared(tmp_path, DECLARED + joins))
    ends = [30, 45, 90] if seed == 1 else [30, 40, 41, 60, 90]
    with capture_logs() as logs:
        for begin, end in zip([0, *ends], ends, strict=False):
            again = chance.sample(sent[:begin], min(begin, 5))
            lake.put([*sent[begin:end], *again])
            lake.refine()
            assert_right(lake, sent[:end])
    assert not [each for each in logs if "computed whole" in each["event"]]
    updated = lake.updated("first_answer")
    assert any(0 < count < 20 for count in updated), "each batch writes all rows"


PAIR = """
[joins.answered]
left = "calls"
right = "answers"
on = { who = "who" }
within = { after = "1 minute" }
"""


def test_a_join_follows_its_declaration_and_the_fields_of_its_topics(
    spark: SparkSession, tmp_path: Path, is_nightly: bool
) -> None:
    """With only one partner, the key is another one; a field is added to a topic and its joins."""
    lake = SilverLake(spark, tmp_path, declared(tmp_path, DECLARED + PAIR))
    call = {"id": 1, "who": "ada", "place": 0, "kind": "out", "at": BEGIN}
    lake.put([json_message("calls", 1, **call), json_message("calls", 2, **{**call, "id": 2})])
    times = {1: 60_000, 2: 30_000, 3: 30_000, 4: 60_001}
    lake.put(
        json_message("answers", nr, f"0|{nr}", place=0, nr=nr, who="ada", givenAt=BEGIN + after)
        for nr, after in times.items()
    )
    lake.refine()
    pairs = {(row["id"], row["answers_nr"]) for row in lake.rows("answered")}
    assert pairs == {(call, nr) for call in (1, 2) for nr in (1, 2, 3)}

    first = PAIR + 'match = "first"\n'
    longer = DECLARED.replace(
        'kind = "string"', 'kind = "string"\ntext = { type = "string", required = false }'
    )
    lake.topics = declared(tmp_path, longer + first)
    lake.put([json_message("calls", 9, **{**call, "id": 3, "who": "bob", "text": "hello"})])
    lake.refine()
    found = {(row["id"], row["answers_nr"], row["text"]) for row in lake.rows("answered")}
    assert found == {(1, 2, None), (2, 2, None), (3, None, "hello")}

    lake.topics = declared(tmp_path, longer + PAIR + 'match = "last"\n')
    lake.put([json_message("answers", 10, "0|5", place=0, nr=5, who="bob", givenAt=BEGIN)])
    lake.refine()
    found = {(row["id"], row["answers_nr"], row["text"]) for row in lake.rows("answered")}
    assert found == {(1, 1, None), (2, 1, None), (3, 5, "hello")}
    if is_nightly:
        rebuild(lake.spark, lake.lake)
        again = {(row["id"], row["answers_nr"], row["text"]) for row in lake.rows("answered")}
        assert again == found


def test_a_condition_that_is_none_is_refused_by_name(spark: SparkSession, tmp_path: Path) -> None:
    wrong = PAIR + 'left_where = "place"\n'
    lake = SilverLake(spark, tmp_path, declared(tmp_path, DECLARED + wrong))
    lake.put([json_message("calls", 1, id=1, who="ada", place=0, kind="out", at=BEGIN)])
    with pytest.raises(SettingsError, match="join 'answered' in the .*INT.* Correct its 'left_w"):
        lake.refine()


def clicks_of_the_example(lake: SilverLake) -> list[Message]:
    topic = lake.topics.topics["clicks"]
    sent = messages(topic, CLICKS / "sample" / "clicks.csv")
    return [message("clicks", n, each.key, each.value) for n, each in enumerate(sent)]


@pytest.mark.nightly
def test_clicks_are_joined_with_the_purchases_that_follow(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The example's values, by DuckDB over its CSV file.

    The last purchases come with a batch of too many rows for the driver.
    """
    lake = SilverLake(spark.newSession(), tmp_path, load_topics(CLICKS / "topics.toml"))
    sent = clicks_of_the_example(lake)
    for batch, most in ((sent[:-3], MOST_ROWS), (sent[-3:], 0)):
        monkeypatch.setattr("silver.materialized.MOST_ROWS", most)
        lake.put(batch)
        lake.refine()
    found = lake.rows("purchases_after_clicks")
    wanted = duckdb.sql(f"""
        WITH clicks AS (FROM read_csv('{CLICKS}/sample/clicks.csv'))
        SELECT a.event_id, min_by(b.event_id, b.occurred_at) FROM clicks AS a LEFT JOIN clicks AS b
        ON b.kind = 'purchase' AND a.user_id = b.user_id AND a.item_id = b.item_id
            AND b.occurred_at BETWEEN a.occurred_at AND a.occurred_at + INTERVAL 30 MINUTES
        WHERE a.kind <> 'purchase' GROUP BY a.event_id
    """).fetchall()
    assert {(row["event_id"], row["purchase_event_id"]) for row in found} == {*wanted}
    assert {("e18", "e22"), ("e21", "e22"), ("e14", "e24"), ("e08", None)} <= {*wanted}

    without = sum(purchase is None for _, purchase in wanted)
    rows = {line.table: line.rows for line in lake_status(lake.lake)}
    assert rows["silver.purchases_after_clicks"] == len(wanted)
    assert rows["silver.missing_purchases_after_clicks"] == without
    families = {family.name: family for family in silver_collector(lake.lake).collect()}
    samples = {sample.labels["lookup"]: sample.value for sample in families[MISSING.name].samples}
    assert samples == {"user": 0, "item": 0, "purchases_after_clicks": without}


def test_events_without_a_partner_are_listed(spark: SparkSession, tmp_path: Path) -> None:
    every = load_topics(CLICKS / "topics.toml")
    [join] = every.joins.values()  # under a name that no other lake of these tests has
    joins = {"pairs_listed": join.model_copy(update={"name": "pairs_listed"})}
    topics = TopicFile(topics={"clicks": every.topics["clicks"]}, joins=joins)
    lake = SilverLake(spark, tmp_path, topics)
    table = lake.lake.table(view_table(topics.kept_views()[0], topics))
    table.create()
    table.arrow.append(
        [
            {"event_id": f"e{n}", "purchase_event_id": partner, "silver_batch": 0}
            for n, partner in enumerate(["p", None, None])
        ]
    )
    has_silver = spark.catalog.databaseExists("silver")
    spark.sql("CREATE DATABASE IF NOT EXISTS silver")
    own, missing = table.full_name, "silver.missing_pairs_listed"
    try:
        spark.sql(f"CREATE TABLE {own} USING delta LOCATION '{table.path}'")
        create_views(spark, topics)
        found = spark.table(missing)
        assert {row["event_id"] for row in found.collect()} == {"e1", "e2"}
        # A view whose name a table of the lake still has, because it had a key before.
        view = View(name="pairs_listed", description="?", sql="SELECT 7 AS seven")
        create_views(spark, TopicFile(topics={}, views={"pairs_listed": view}))
        create_views(spark, TopicFile(topics={}, views={"pairs_listed": view}))
        assert [row["seven"] for row in spark.table(own).collect()] == [7]
        assert table.exists()
    finally:
        spark.sql(f"DROP VIEW IF EXISTS {missing}")
        spark.sql(f"DROP VIEW IF EXISTS {own}")
        if not has_silver:
            spark.sql("DROP DATABASE silver")
