"""Tests SCD2 tables and lookups of the version valid at a time, in any order of arrival."""

import datetime as dt
import random
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from history_model import Version, Woven, chain, valid
from hypothesis import given, settings
from hypothesis import strategies as st
from messages import json_message
from model import Message
from pyspark.sql import SparkSession
from silver_lake import SilverLake
from topic import declared

TOPICS = """
[topics.rates]
kind = "changelog"
key = ["currency"]
sequence = ["version"]
delete = "never"
truncate = { field = "op", equals = "t" }
history = true
event_time = "at"
[topics.rates.fields]
currency = "string"
version = "int"
at = "timestamp_ms"
op = { type = "string", required = false }

[topics.people]
kind = "changelog"
key = ["id"]
merged_into = "parent"
history = true
event_time = "at"
[topics.people.fields]
id = "string"
parent = { type = "string", required = false }
at = "timestamp_ms"

[topics.sales]
kind = "events"
key = ["id"]
event_time = "at"
[topics.sales.fields]
id = "int"
currency = "string"
person = "string"
at = "timestamp_ms"
[topics.sales.lookups]
rate = { topic = "rates", on = "currency", mode = "as_of" }
buyer = { topic = "people", on = "person", mode = "as_of" }
"""
KEYS, INSTANTS = "ab", range(12)
# Merge target by message number. Most form chains, some form cycles.
PARENTS = [random.Random(n).choice([None, *"abcd"]) for n in range(24)]

versions = st.builds(
    Version,
    key=st.sampled_from([*KEYS, None]),
    order=st.tuples(st.integers(0, 4), st.integers(0, 30)),
    at=st.sampled_from(INSTANTS),
)


@settings(max_examples=200, deadline=None)
@given(
    history=st.lists(versions, max_size=10, unique_by=lambda version: version.order[1]),
    chance=st.randoms(),
)
def test_any_order_split_and_replay_gives_the_version_valid_at_each_instant(
    history: list[Version], chance: random.Random
) -> None:
    """The model of silver's rule for the validity of versions."""
    shuffled = chance.sample(history, len(history))
    cuts = sorted(chance.randrange(len(history) + 1) for _ in range(3))
    batches = [shuffled[i:j] for i, j in pairwise([0, *cuts, len(history)])]
    woven = Woven()
    for batch in (*batches, *chance.choices(batches, k=3)):
        woven.batch(batch)
    for instant in INSTANTS:
        assert woven.valid(instant) == valid(history, instant)


def rate(version: Version) -> Message:
    content: dict[str, Any] = {"currency": version.key, "version": version.order[0]}
    content["op"] = "t" if version.key is None else "u"
    return json_message("rates", version.order[1], str(version.key), **content, at=version.at)


def person(version: Version) -> Message:
    fields = {"id": version.key, "at": version.at, "parent": PARENTS[version.order[1]]}
    return json_message("people", version.order[1], **fields)


def instant(value: dt.datetime) -> int:
    return round(value.timestamp() * 1000)


@pytest.mark.nightly
@pytest.mark.parametrize("count", [2, 1])
def test_real_tables_hold_the_valid_versions_in_any_order_of_arrival(
    spark: SparkSession, tmp_path: Path, count: int
) -> None:
    """Invariants 3 and 4: any number of batches gives the same tables."""
    rng = random.Random(4)
    rates = [
        Version(rng.choice([*KEYS * 3, None]), (rng.randrange(8), n), rng.choice(INSTANTS))
        for n in range(24)
    ]
    people = [Version(rng.choice("abc"), (0, n), rng.choice(INSTANTS)) for n in range(24)]
    sales = {n: (rng.choice("abc"), rng.choice("abc"), at) for n, at in enumerate([*INSTANTS] * 3)}
    messages = [*map(rate, rates), *map(person, people)]
    messages += [
        json_message("sales", n, id=n, currency=currency, person=buyer, at=at)
        for n, (currency, buyer, at) in sales.items()
    ]
    lake = SilverLake(spark, tmp_path / "lake", declared(tmp_path, TOPICS))
    rng.shuffle(messages)
    for batch in range(count):
        lake.put(messages[batch::count])
        lake.refine()
    assert lake.rows("quarantine") == []
    histories = [
        lake.table(f"{topic}_history").orderBy("position").collect()
        for topic in ("rates", "people")
    ]
    enriched = lake.table("enriched_sales").orderBy("id").collect()
    for rows, given_ in zip(histories, (rates, people), strict=True):
        assert [row["position"]["entry"] for row in rows] == [each.order[1] for each in given_]
        for at in INSTANTS:
            held = {
                row[0]: row["position"]["entry"]
                for row in rows
                if row[0] is not None
                and instant(row["valid_from"]) <= at
                and (row["valid_to"] is None or at < instant(row["valid_to"]))
            }
            assert held == {key: each.order[1] for key, each in valid(given_, at).items()}, at
    ends = dict[int, tuple[int, str | None]]()
    for row in enriched:
        currency, buyer, at = sales[row["id"]]
        expected = [valid(rates, at).get(currency), valid(people, at).get(buyer)]
        places = [row["rate_position"], row["buyer_position"]]
        assert [each and each["entry"] for each in places] == [
            each and each.order[1] for each in expected
        ]
        assert row["missing_lookups"] == expected.count(None)
        if row["buyer"] is not None:
            then = valid(people, at)
            now = {key: PARENTS[version.order[1]] for key, version in then.items()}
            ends[row["id"]] = len((walk := chain(now, buyer))[0]), walk[1]
            assert row["buyer"]["resolved_id"] == walk[1], (row["id"], walk)
    assert any(links > 2 and end for links, end in ends.values()), "no chain of two merges"
    assert any(end is None for _, end in ends.values()), "no cycle of merges"
    assert any(row["mark"] == "truncated" for row in histories[0])
