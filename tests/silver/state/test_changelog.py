"""Tests that a changelog with a sequence has each key's latest row in any order of arrival."""

import json
import random
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from changelog_model import Change, Merged, current
from hypothesis import given, settings
from hypothesis import strategies as st
from model import Message, Position
from pyspark.sql import SparkSession
from silver_lake import SilverLake
from topic import declared

TOPICS = """
[topics.prices]
kind = "changelog"
key = ["shop", "item"]
sequence = ["day", "version"]
delete = { field = "op", equals = "d" }
[topics.prices.fields]
shop = "string"
item = "int"
day = "date"
version = "int"
op = { type = "string", required = false }
price = "decimal(12,2)"
"""

DAYS = ("2026-01-30", "2026-01-31", "2026-02-01")
changes = st.builds(
    Change,
    key=st.tuples(st.sampled_from("xy"), st.integers(0, 2)),
    sequence=st.tuples(st.sampled_from(DAYS), st.integers(-1, 2)),
    position=st.integers(0, 30),
    price=st.one_of(st.none(), st.integers(0, 9)),
)


@settings(max_examples=200, deadline=None)
@given(
    history=st.lists(changes, max_size=12, unique_by=lambda change: change.position),
    chance=st.randoms(),
)
def test_any_order_split_and_replay_of_batches_gives_the_latest_row_of_each_key(
    history: list[Change], chance: random.Random
) -> None:
    """The model of silver's merge rule, which is fast enough for a thousand histories."""
    shuffled = chance.sample(history, len(history))
    cuts = sorted(chance.randrange(len(history) + 1) for _ in range(3))
    batches = [shuffled[i:j] for i, j in pairwise([0, *cuts, len(history)])]
    merged = Merged()
    for batch in (*batches, *chance.choices(batches, k=3)):
        merged.batch(batch)
    assert merged.current() == current(history)


def random_history(seed: int, length: int) -> list[Change]:
    rng = random.Random(seed)
    return [
        Change(
            key=(rng.choice("xy"), rng.randrange(3)),
            sequence=(rng.choice(DAYS), rng.randint(-1, 2)),
            position=position,
            price=None if rng.random() < 0.3 else position,
        )
        for position in range(length)
    ]


def message(change: Change, **fields: Any) -> Message:
    shop, item = change.key
    day, version = change.sequence
    content = {"shop": shop, "item": item, "day": day, "version": version}
    content |= {"op": "d"} if change.price is None else {"op": "u", "price": change.price}
    payload = json.dumps({**content, **fields}).encode()
    return Message("prices", Position(1, change.position, 0, 0), f"{shop}|{item}", payload)


@pytest.fixture
def lake(spark: SparkSession, tmp_path: Path) -> SilverLake:
    return SilverLake(spark, tmp_path, declared(tmp_path, TOPICS))


def test_a_real_table_matches_the_model(lake: SilverLake) -> None:
    history = random_history(seed=1, length=60)
    rng = random.Random(1)
    rng.shuffle(history)
    for batch in (history[:25], history[20:], rng.sample(history, 20)):
        lake.put(message(change) for change in batch)
        lake.refine()
    rows = lake.rows("prices_state", "NOT is_deleted")
    found = {(row["shop"], row["item"]): int(row["price"]) for row in rows}
    assert found == {key: change.price for key, change in current(history).items()}
    assert lake.rows("quarantine") == []


def test_a_record_without_a_sequence_is_quarantined(lake: SilverLake) -> None:
    good = Change(("x", 1), (DAYS[1], 1), 1, 7)
    older_delete = Change(("x", 1), (DAYS[0], 9), 2, None)
    no_sequence = message(good._replace(position=3, price=None), day=None)
    tombstone = message(good._replace(position=4))._replace(payload=b"")
    lake.put([message(good), message(older_delete), no_sequence, tombstone])
    lake.refine()
    [row] = lake.rows("prices_state")
    assert (row["price"], row["is_deleted"]) == (7, False)
    assert [row["reason"] for row in lake.refused()] == [
        "field 'day' is missing",
        "payload is empty, so it has no sequence",
    ]
