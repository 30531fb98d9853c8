"""Tests that a join handles all rows near a changed event, and few others."""

import datetime as dt
import random

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from lake.topics.views.joins import Reach
from silver.nearby import MOST_SPANS, Nearby

BEGIN = dt.datetime(2026, 1, 1, tzinfo=dt.timezone.utc)
SPAN = dt.timedelta(minutes=1)
REACH = Reach({"calls": "at", "answers": "given"}, "at", SPAN)


def nearby(*seconds: float) -> Nearby:
    """Return what is near changes of two tables, divided between them."""
    instants = [BEGIN + dt.timedelta(seconds=each) for each in seconds]
    half = len(instants) // 2
    columns = {"calls": ("at", instants[:half]), "answers": ("given", instants[half:])}
    kind = pa.timestamp("us", "UTC")
    return Nearby.of(
        REACH,
        {n: pa.table({column: pa.array(v, kind)}) for n, (column, v) in columns.items()},
    )


def at(seconds: float) -> dt.datetime:
    return BEGIN + dt.timedelta(seconds=seconds)


def test_a_row_at_the_bound_is_near_and_one_beyond_is_not() -> None:
    found = nearby(0, 1_000_000)
    for middle in (0, 1_000_000):
        for side in (-1, 1):
            assert found.holds(at(middle + side * 60))
            assert not found.holds(at(middle + side * 60.000001))


def test_many_instants_become_few_spans_that_contain_them_all() -> None:
    chance = random.Random(1)
    seconds = [chance.choice([0, 10**6, 10**8]) + chance.randrange(1000) for _ in range(500)]
    found = nearby(*seconds)
    assert len(found.spans) <= MOST_SPANS
    assert all(found.holds(at(each)) for each in seconds)
    assert not found.holds(at(10**7))


def test_instants_at_the_ends_of_time_have_margins_within_it() -> None:
    first = dt.datetime(1, 1, 1, tzinfo=dt.timezone.utc)
    ends = [first, dt.datetime(9999, 12, 31, 23, 59, 59, 999_999, dt.timezone.utc)]
    changed = pa.table({"at": pa.array(ends, pa.timestamp("us", "UTC"))})
    found = Nearby.of(REACH, {"calls": changed})
    assert all(found.holds(each) for each in ends)
    assert "0001-01-01" in found.searched()
    assert "9999-12-31" in found.searched()


def test_without_changes_nothing_is_near() -> None:
    found = nearby()
    assert not found.holds(BEGIN)
    assert found.read("calls") == "(`at` IS NULL)"
    assert found.holds(None)


@pytest.mark.parametrize("margin", [1, 2])
def test_spark_finds_the_same_rows_up_to_one_reach_or_two(spark: SparkSession, margin: int) -> None:
    found, column = nearby(0, 40, 100_000), "at" if margin == 1 else "given"
    offsets = [-120.000001, -120, -60.000001, -60, 0, 100, 100.000001, 160, 160.000001, 99_880]
    instants = [None, *(at(each) for each in offsets)]
    rows = pa.table({column: pa.array(instants, pa.timestamp("us", "UTC"))})
    frame = spark.createDataFrame(rows).alias("t")
    condition = found.written("t") if margin == 1 else found.read("answers")
    wanted = [
        each
        for each in offsets
        if any(abs(each - middle) <= 60 * margin for middle in (0, 40, 100_000)) or 0 < each < 40
    ]
    [without, *kept] = [row[0] for row in frame.where(condition).collect()]
    assert without is None
    assert [each.astimezone(dt.timezone.utc) for each in kept] == [at(each) for each in wanted]
