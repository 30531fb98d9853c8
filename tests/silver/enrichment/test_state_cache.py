"""Tests that the cache of a state table for lookups has the same rows as the table."""

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from pyspark.sql import SparkSession

from lake.settings.settings import load_settings
from lake.tables.arrow import ArrowTable
from lake.tables.lake import Lake
from lake.tables.spec import CHANGE_FEED, DELETION_VECTORS, TableSpec
from pulsar_spark.schema import Column
from silver.enrichment import recent_changes, state_cache
from silver.enrichment.state_cache import StateCache

STATE = TableSpec("silver", "state", "", (Column("id", "bigint", ""), Column("v", "string", "")))
BEYOND = 2**40  # beyond a 32-bit key
MakeKey = Callable[[int], Any]


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(load_settings(home=tmp_path))


def rows(keys: list[Any], value: str, kind: pa.DataType) -> pa.Table:
    schema = pa.schema([("id", kind), ("v", pa.string())])
    return pa.table([keys, [value] * len(keys)], schema=schema)


def found(cache: StateCache, lake: Lake, wanted: pa.Array) -> dict[Any, str]:
    answer = cache.find(lake.table(STATE).arrow, wanted)
    assert answer.column_names == ["id", "v"]
    pairs = list(zip(answer["id"].to_pylist(), answer["v"].to_pylist(), strict=True))
    assert len(dict(pairs)) == len(pairs)
    return dict(pairs)


def count_copies(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return a list that grows with each new copy of the table."""
    made: list[int] = []
    read = ArrowTable.batches

    def counted(*args: Any) -> Any:
        made.append(1)
        return read(*args)

    monkeypatch.setattr(ArrowTable, "batches", counted)
    return made


@pytest.mark.parametrize(
    ("kind", "key"),
    [(pa.int32(), int), (pa.int64(), int), (pa.string(), "käse {:03}".format)],
    ids=["int", "long", "string"],
)
def test_rows_are_found_in_their_current_state(
    lake: Lake, kind: pa.DataType, key: MakeKey, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(state_cache, "CHUNK_ROWS", 7)
    path = lake.table(STATE).path
    first = rows([key(n) for n in (5, 1, 9, 3)] + [None], "a", kind)
    write_deltalake(path, first, configuration=CHANGE_FEED)
    for begin in range(10, 40, 10):
        more = rows([key(n) for n in range(begin, begin + 10)], "a", kind)
        write_deltalake(path, more, mode="append")
    folder = lake.settings.home_dir / "copies"
    cache = StateCache("id", ["v"], folder)
    asked = [key(n) for n in (3, 2, 39, 9, 10, 77, 0, 12)]
    wanted = pa.array([*asked, None], kind)
    expected = {key(n): "a" for n in (3, 39, 9, 10, 12)}
    assert found(cache, lake, wanted) == expected
    assert list(folder.iterdir()) == [], "mapped files have no name"
    assert found(cache, lake, pa.array([], kind)) == {}
    if kind == pa.int32():
        assert found(cache, lake, pa.array([BEYOND, -BEYOND, 3], pa.int64())) == {3: "a"}

    table = DeltaTable(path)
    (
        table.merge(rows([key(3), key(2)], "b", kind), "s.id = t.id", "s", "t")
        .when_matched_update_all()
        .when_not_matched_insert_all()
        .execute()
    )
    expected |= {key(3): "b", key(2): "b"}
    assert found(cache, lake, wanted) == expected
    table.optimize.compact()
    assert found(cache, lake, wanted) == expected
    table.delete(f"id = {key(9)!r}")
    table.delete(f"id = {key(2)!r}")
    write_deltalake(path, rows([key(2), key(0)], "c", kind), mode="append")
    expected |= {key(2): "c", key(0): "c"}
    del expected[key(9)]
    assert found(cache, lake, wanted) == expected


def test_more_changes_than_the_cache_keeps_rebuild_it(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recent_changes, "MOST_KEYS", 15)
    path = lake.table(STATE).path
    write_deltalake(path, rows([0], "a", pa.int64()), configuration=CHANGE_FEED)
    cache = StateCache("id", ["v"], lake.settings.home_dir)
    made = count_copies(monkeypatch)
    for turn in range(4):
        new = list(range(turn * 10 + 1, turn * 10 + 11))
        write_deltalake(path, rows(new, "a", pa.int64()), mode="append")
        assert found(cache, lake, pa.array(range(100))) == dict.fromkeys(
            [0, *range(1, new[-1] + 1)], "a"
        )
    assert len(made) == 2


def test_a_table_that_is_too_large_for_the_cache_is_read_directly(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(state_cache, "MOST_ROWS", 2)
    write_deltalake(
        lake.table(STATE).path, rows([1, 2, 3], "a", pa.int64()), configuration=CHANGE_FEED
    )
    cache = StateCache("id", ["v"], lake.settings.home_dir)
    assert found(cache, lake, pa.array([3, 4, None])) == {3: "a"}


def test_the_cache_follows_what_spark_does_to_a_table_with_deletion_vectors(
    spark: SparkSession, lake: Lake
) -> None:
    path = lake.table(STATE).path
    vectors = {**CHANGE_FEED, DELETION_VECTORS: "true"}
    write_deltalake(path, rows(list(range(100)), "a", pa.int64()), configuration=vectors)
    cache = StateCache("id", ["v"], lake.settings.home_dir)
    wanted = pa.array(range(0, 200, 3))
    expected = dict.fromkeys(range(0, 100, 3), "a")
    assert found(cache, lake, wanted) == expected
    state = lake.table(STATE).spark(spark)
    source = spark.range(30, 130, 6).selectExpr("id", "'b' AS v")
    merge = state.alias("t").merge(source.alias("s"), "s.id = t.id")
    merge.whenMatchedUpdateAll().whenNotMatchedInsertAll().execute()
    expected |= dict.fromkeys(range(30, 130, 6), "b")
    assert found(cache, lake, wanted) == expected
    state.delete("id < 50")
    expected = {n: v for n, v in expected.items() if n >= 50}
    assert found(cache, lake, wanted) == expected
    state.optimize().executeCompaction()
    state.optimize().executeZOrderBy("id")
    assert found(cache, lake, wanted) == expected


def change(table: DeltaTable, changed: dict[int, str | None]) -> None:
    """Give keys new values in one version; None deletes a key."""
    source = pa.table([list(changed), list(changed.values())], rows([], "", pa.int64()).schema)
    merge = table.merge(source, "s.id = t.id", "s", "t").when_matched_delete("s.v IS NULL")
    merge = merge.when_matched_update({"v": "s.v"}).when_not_matched_insert(
        {"id": "s.id", "v": "s.v"}, "s.v IS NOT NULL"
    )
    merge.execute()


def apply(expected: dict[int, str], changed: dict[int, str | None]) -> None:
    """Apply the changes to a plain dictionary."""
    for key, value in changed.items():
        if value is None:
            expected.pop(key, None)
        else:
            expected[key] = value


def some_changes(random_: random.Random, hot: int) -> dict[int, str | None]:
    """Return new values for some of the hot keys; about a fifth of them are deleted."""
    keys = random_.sample(range(hot), random_.randrange(1, hot))
    return {
        key: None if random_.random() < 0.2 else "x" * random_.randrange(99) + str(random_.random())
        for key in keys
    }


def test_the_copy_matches_the_table_while_hot_keys_change_vanish_and_return(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    random_ = random.Random(20261124)
    path, expected = lake.table(STATE).path, dict.fromkeys(range(100), "a")
    write_deltalake(path, rows(list(expected), "a", pa.int64()), configuration=CHANGE_FEED)
    cache, table = StateCache("id", ["v"], lake.settings.home_dir), DeltaTable(path)
    wanted, made = pa.array(range(-5, 105, 2)), count_copies(monkeypatch)
    for batch in range(24):
        if batch == 12:
            assert len(made) == 1
            monkeypatch.setattr(recent_changes, "MOST_BYTES", 8_000)
        if batch % 10 == 5:  # one version replaces all rows
            expected = {key: f"{value}." for key, value in expected.items()}
            columns = [list(expected), list(expected.values())]
            new = pa.table(columns, rows([], "", pa.int64()).schema)
            write_deltalake(table, new, mode="overwrite")
        else:
            changed = some_changes(random_, 40)
            change(table, changed)
            apply(expected, changed)
        answer = found(cache, lake, wanted)
        assert answer == {k: expected[k] for k in wanted.to_pylist() if k in expected}, batch
    assert 1 < len(made) < 12, "the copy is rebuilt when the kept changes are too large"
