"""The copy of a state table that is looked up in has what the table has."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from pyspark.sql import SparkSession

from bronze.direct import DirectTable
from bronze.envelope import Column
from bronze.settings import LakeSettings, load_settings
from bronze.tables import TableSpec
from silver import state_cache
from silver.state_cache import StateCache
from silver.tables import CHANGE_FEED, DELETION_VECTORS

STATE = TableSpec("silver", "state", "", (Column("id", "bigint", ""), Column("v", "string", "")))
BEYOND = 2**40  # of a 32-bit key
MakeKey = Callable[[int], Any]


@pytest.fixture
def lake(tmp_path: Path) -> LakeSettings:
    return load_settings(home=tmp_path)


def rows(keys: list[Any], value: str, kind: pa.DataType) -> pa.Table:
    schema = pa.schema([("id", kind), ("v", pa.string())])
    return pa.table([keys, [value] * len(keys)], schema=schema)


def found(cache: StateCache, lake: LakeSettings, wanted: pa.Array) -> dict[Any, str]:
    answer = cache.find(DirectTable(STATE, lake), wanted)
    assert answer.column_names == ["id", "v"]
    pairs = list(zip(answer["id"].to_pylist(), answer["v"].to_pylist(), strict=True))
    assert len(dict(pairs)) == len(pairs)
    return dict(pairs)


@pytest.mark.parametrize(
    ("kind", "key"),
    [(pa.int32(), int), (pa.int64(), int), (pa.string(), "käse {:03}".format)],
    ids=["int", "long", "string"],
)
def test_rows_are_found_as_the_table_has_them_now(
    lake: LakeSettings, kind: pa.DataType, key: MakeKey, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(state_cache, "CHUNK_ROWS", 7)
    path = STATE.path(lake)
    first = rows([key(n) for n in (5, 1, 9, 3)] + [None], "a", kind)
    write_deltalake(path, first, configuration=CHANGE_FEED)
    for begin in range(10, 40, 10):
        more = rows([key(n) for n in range(begin, begin + 10)], "a", kind)
        write_deltalake(path, more, mode="append")
    folder = lake.home_dir / "copies"
    cache = StateCache("id", ["v"], folder)
    asked = [key(n) for n in (3, 2, 39, 9, 10, 77, 0, 12)]
    wanted = pa.array([*asked, None], kind)
    expected = {key(n): "a" for n in (3, 39, 9, 10, 12)}
    assert found(cache, lake, wanted) == expected
    assert list(folder.iterdir()) == [], "what is mapped has no name"
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


def test_more_changes_than_are_kept_beside_it_make_it_anew(
    lake: LakeSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(state_cache, "MOST_CHANGES", 15)
    path = STATE.path(lake)
    write_deltalake(path, rows([0], "a", pa.int64()), configuration=CHANGE_FEED)
    cache = StateCache("id", ["v"], lake.home_dir)
    made: list[int] = []
    read = DirectTable.batches

    def counted(*args: Any) -> Any:
        made.append(1)
        return read(*args)

    monkeypatch.setattr(DirectTable, "batches", counted)
    for turn in range(4):
        new = list(range(turn * 10 + 1, turn * 10 + 11))
        write_deltalake(path, rows(new, "a", pa.int64()), mode="append")
        assert found(cache, lake, pa.array(range(100))) == dict.fromkeys(
            [0, *range(1, new[-1] + 1)], "a"
        )
    assert len(made) == 2


def test_a_table_that_is_too_large_for_it_is_read(
    lake: LakeSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(state_cache, "MOST_ROWS", 2)
    write_deltalake(STATE.path(lake), rows([1, 2, 3], "a", pa.int64()), configuration=CHANGE_FEED)
    cache = StateCache("id", ["v"], lake.home_dir)
    assert found(cache, lake, pa.array([3, 4, None])) == {3: "a"}


def test_what_spark_does_to_a_table_with_deletion_vectors_is_followed(
    spark: SparkSession, lake: LakeSettings
) -> None:
    path = STATE.path(lake)
    vectors = {**CHANGE_FEED, DELETION_VECTORS: "true"}
    write_deltalake(path, rows(list(range(100)), "a", pa.int64()), configuration=vectors)
    cache = StateCache("id", ["v"], lake.home_dir)
    wanted = pa.array(range(0, 200, 3))
    expected = dict.fromkeys(range(0, 100, 3), "a")
    assert found(cache, lake, wanted) == expected
    state = STATE.open(spark, lake)
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
