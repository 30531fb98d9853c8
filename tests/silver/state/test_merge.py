"""Tests the choice of the latest row of each key in the driver, and merges without Spark."""

import datetime as dt
import random
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from lake.settings.settings import LakeSettings
from lake.tables.lake import Lake
from lake.tables.spec import CHANGE_FEED, TableSpec
from pulsar_spark.schema import Column
from silver.state.merge import Merge, all_of, apply_merge, latest_here

PLACE = pa.struct(
    [("order_time", pa.timestamp("us")), ("ledger", pa.int64()), ("entry", pa.int64())]
)
SCHEMA = pa.schema([("id", pa.int64()), ("line", pa.string()), ("position", PLACE)])
EPOCH = dt.datetime(1970, 1, 1)  # noqa: DTZ001 - as Arrow has them
rows = st.tuples(st.integers(-2, 2), st.sampled_from(["a", "b"]), st.integers(0, 20))


@given(st.lists(rows, max_size=30))
def test_the_latest_row_has_the_highest_position_in_any_order_of_rows(
    found: list[tuple[int, str, int]],
) -> None:
    table = pa.Table.from_pylist(
        [
            {
                "id": key,
                "line": line,
                "position": {"order_time": n // 9 or None, "ledger": n % 9 // 3, "entry": n % 3},
            }
            for key, line, n in found
        ],
        SCHEMA,
    )
    latest = latest_here(table, ["id", "line"]).to_pylist()
    assert len(latest) == len({(key, line) for key, line, _ in found})
    for row in latest:
        place = row["position"]
        micros = (place["order_time"] or EPOCH) - EPOCH
        number = micros.microseconds * 9 + place["ledger"] * 3 + place["entry"]
        same = [n for key, line, n in found if (key, line) == (row["id"], row["line"])]
        assert number == max(same)


def test_a_sequence_comes_before_the_position_and_the_last_of_equal_rows_stays() -> None:
    table = pa.table(
        {
            "id": [1, 1, 1, 2, 2],
            "at": pa.array([5, 7, 7, None, -1], pa.int64()),
            "position": [{"entry": 9}, {"entry": 1}, {"entry": 1}, {"entry": 8}, {"entry": 0}],
            "which": ["low", "equal", "last", "null", "later"],
        }
    )
    latest = latest_here(table, ["id"], ["at", "position"])
    assert sorted(latest["which"].to_pylist()) == ["last", "later"]


SPEC = TableSpec(
    *("silver", "merged", "A table"),
    (
        Column("id", "int", "a part of the key"),
        Column("mark", "string", "a part of the key"),
        Column("amount", "int", "a value"),
        Column("place", "struct<city:string,zip:int>", "a value with members"),
    ),
    CHANGE_FEED,
)
Key = tuple[int | None, str | None]
Held = dict[Key, dict[str, Any]]


def some_rows(chance: random.Random) -> Held:
    """Return random rows. A part of a key, an amount and a place may be NULL."""
    found: Held = {}
    for _ in range(25):
        key = chance.choice([None, *range(12)]), chance.choice([None, "a", "b"])
        city = chance.choice(["Rome", None])
        found[key] = {
            **{"id": key[0], "mark": key[1], "amount": chance.choice([None, *range(10)])},
            "place": chance.choice([None, {"city": city, "zip": chance.randrange(9)}]),
        }
    return found


def merged(known: Held, came: Held, *, removes: bool) -> Held:
    """Return what the merge of the test leaves."""
    found: Held = {}
    for key in {**known, **came}:
        old, new = known.get(key), came.get(key)
        if old is None or new is None:
            row = old or new
            assert row is not None
            amount = row["amount"]
            if removes and new is None and amount is not None:
                if amount < 3:
                    continue
                row = {**row, "amount": -amount} if amount > 7 else row
        elif None in (old["amount"], new["amount"]) or new["amount"] <= old["amount"]:
            row = old
        else:
            row = {**old, "amount": new["amount"], "place": new["place"]}
        found[key] = row
    return found


@pytest.mark.parametrize("removes", [False, True])
@pytest.mark.parametrize("small", [False, True])
def test_a_merge_writes_the_same_in_the_driver_and_by_spark(
    spark: SparkSession, settings: LakeSettings, small: bool, removes: bool
) -> None:
    table = Lake(settings).table(SPEC)
    table.create()
    chance = random.Random(1)
    held, writers = some_rows(chance), []
    table.arrow.append([*held.values()])
    for _ in range(2):
        came = some_rows(chance)
        schema = table.arrow.schema(["id", "mark", "amount", "place"])
        source = spark.createDataFrame(pa.Table.from_pylist([*came.values()], schema))
        values = {"amount": "s.amount", "place": "s.place"}
        merge = Merge(
            *(source, ["id", "mark"], (F.expr("s.amount > t.amount"), values), all_of(source)),
            equals="<=>",
            deleted=F.expr("t.amount < 3") if removes else None,
            left=(F.expr("t.amount > 7"), {"amount": F.expr("-t.amount")}) if removes else None,
        )
        apply_merge(table, merge, small=small)
        held = merged(held, came, removes=removes)
        rows = table.arrow.rows(table.arrow.names)
        assert {(row["id"], row["mark"]): row for row in rows} == held
        assert len(rows) == len(held)
        [commit] = table.log().history(1)
        writers.append((commit["operation"], commit["engineInfo"].startswith("delta-rs")))
    assert writers == [("MERGE", small)] * 2
