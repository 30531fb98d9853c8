"""Tests that small differences are found and written, in real Delta tables without Spark."""

import datetime as dt
import json
import math
import os
import random
import subprocess
import sys
import time
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, TableFeatures, write_deltalake

from gold.kept.table import KeptTable, WrongKey, are_exact

COLUMNS = {
    "id": "bigint",
    "part": "string",
    "price": "decimal(12,2)",
    "day": "date",
    "at": "timestamp",
    "rate": "double",
    "is_open": "boolean",
}
SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("part", pa.string()),
        ("price", pa.decimal128(12, 2)),
        ("day", pa.date32()),
        ("at", pa.timestamp("us", "UTC")),
        ("rate", pa.float64()),
        ("is_open", pa.bool_()),
    ]
)
UTC = dt.timezone.utc
MICROS = "1767323045678900"
AT = dt.datetime(2026, 1, 2, 3, 4, 5, 678900, UTC)
ONE = (1, "a", Decimal("1.50"), dt.date(2026, 1, 2), AT, 0.1, True)
TWO = (2, "b", Decimal("-0.01"), dt.date(1969, 12, 31), AT, math.inf, False)
EMPTY = (3, None, None, None, None, None, None)


@pytest.fixture
def place(tmp_path: Path) -> str:
    path = str(tmp_path / "a table")
    columns = list(zip(ONE, TWO, EMPTY, strict=True))
    rows = pa.table([pa.array(c, f.type) for c, f in zip(columns, SCHEMA, strict=True)], SCHEMA)
    feed = {"delta.enableChangeDataFeed": "true"}
    write_deltalake(path, rows, configuration=feed)
    return path


def opened(place: str, key: tuple[str, ...] = ("id",)) -> KeptTable:
    table = KeptTable.open(Path(place).as_uri(), COLUMNS, key)
    assert table is not None
    return table


def rows_of(place: str) -> set[tuple[Any, ...]]:
    found = DeltaTable(place).to_pyarrow_table().select(list(COLUMNS)).to_pylist()
    return {tuple(row.values()) for row in found}


def test_values_are_read_from_the_text_that_spark_gives(place: str) -> None:
    texts: list[list[str | None]] = [
        ["1", "a", "1.50", "2026-01-02", MICROS, "0.1", "true"],
        ["2", "b", "-0.01", "1969-12-31", MICROS, "Infinity", "false"],
        ["3", None, None, None, None, None, None],
    ]
    assert opened(place).read(list(COLUMNS), texts) == [ONE, TWO, EMPTY]


def test_a_value_that_arrow_cannot_read_is_an_error(place: str) -> None:
    with pytest.raises(pa.ArrowInvalid):
        opened(place).read(["day"], [["+10000-01-01"]])


def test_only_what_differs_is_written_in_one_marked_commit(place: str) -> None:
    changed = (*TWO[:1], "new", *TWO[2:])
    four = (4, *ONE[1:])
    table = opened(place)
    difference = table.difference(["id"], [(1,), (2,), (3,), (4,)], [ONE, changed, four])
    assert (difference.new, difference.gone, difference.count) == ([changed, four], [(3,)], 3)
    table.write(difference, "build-7")
    assert rows_of(place) == {ONE, changed, four}
    newest = DeltaTable(place).history(1)[0]
    assert (newest["version"], newest["userMetadata"]) == (1, "build-7")
    feed = pa.table(DeltaTable(place).load_cdf(1)).to_pylist()
    kinds = sorted((row["_change_type"], row["id"]) for row in feed)
    assert kinds == [("delete", 3), ("insert", 4), ("update_postimage", 2), ("update_preimage", 2)]


def test_new_rows_alone_are_appended(place: str) -> None:
    four = (4, *ONE[1:])
    table = opened(place)
    difference = table.difference(["id"], [(4,)], [four])
    table.write(difference, "build-8")
    assert rows_of(place) == {ONE, TWO, EMPTY, four}
    newest = DeltaTable(place).history(1)[0]
    assert (newest["operation"], newest["userMetadata"]) == ("WRITE", "build-8")


def test_rows_with_another_scope_are_left_alone_and_null_is_a_scope(place: str) -> None:
    table = opened(place)
    assert table.difference(["part"], [(None,)], []).gone == [(3,)]
    assert table.difference(["part", "is_open"], [("a", False)], []).count == 0
    assert table.difference(["part", "is_open"], [("a", True)], []).gone == [(1,)]


def test_nan_is_equal_to_itself(place: str) -> None:
    rows = [(*ONE[:5], math.nan, True)]
    table = opened(place)
    table.write(table.difference(["id"], [(1,)], rows), "b")
    again = opened(place)
    texts = [["1", "a", "1.50", "2026-01-02", MICROS, "NaN", "true"]]
    assert again.difference(["id"], [(1,)], again.read(list(COLUMNS), texts)).count == 0


@pytest.mark.parametrize(
    ("rows", "reason"),
    [([ONE, (1, "x", *ONE[2:])], "comes more than once"), ([(None, *ONE[1:])], "is NULL")],
)
def test_a_wrong_key_is_refused_with_its_rows(
    place: str, rows: list[tuple[Any, ...]], reason: str
) -> None:
    with pytest.raises(WrongKey, match=reason) as caught:
        opened(place).difference(["id"], [(1,), (None,)], rows)
    assert caught.value.rows == rows


def test_tables_elsewhere_and_with_other_types_or_features_are_left_to_spark(place: str) -> None:
    assert KeptTable.open("s3a://bucket/t", COLUMNS, ["id"]) is None
    assert KeptTable.open(Path(place).as_uri(), {"id": "array<int>"}, ["id"]) is None
    DeltaTable(place).alter.add_feature([TableFeatures.DeletionVectors], True)
    assert KeptTable.open(Path(place).as_uri(), COLUMNS, ["id"]) is None
    assert not are_exact(["bigint", "binary"])
    assert not are_exact(["float"])


KILLS = int(os.environ.get("TEST_KILLS", "1"))
SWITCHING = """
import sys
from gold.kept.table import KeptTable
place, turns = sys.argv[1], 0
while True:
    table = KeptTable.open(place, {"id": "bigint", "n": "bigint"}, ["id"])
    new = [[(1, 0), (2, 0), (3, 0)], [(2, 1), (3, 1), (4, 1)]][turns % 2]
    table.write(table.difference(["id"], [(n,) for n in range(1, 5)], new), f"build-{turns}")
    turns += 1
    print(turns, flush=True)
"""


@pytest.mark.timeout(60 * KILLS)
def test_a_kill_at_any_moment_leaves_the_rows_before_or_after_a_write(tmp_path: Path) -> None:
    """A process replaces three rows by three others, and back, until it is killed."""
    path = tmp_path / "t"
    schema = pa.schema([("id", pa.int64()), ("n", pa.int64())])
    feed = {"delta.enableChangeDataFeed": "true"}
    write_deltalake(path, pa.table({"id": [1, 2, 3], "n": [0, 0, 0]}, schema), configuration=feed)
    states = ([(1, 0), (2, 0), (3, 0)], [(2, 1), (3, 1), (4, 1)])
    chance = random.Random(1)
    seen = set()
    for _ in range(KILLS):
        command = [sys.executable, "-c", SWITCHING, path.as_uri()]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            assert process.stdout.readline()
            time.sleep(chance.random() / 4)  # the moment of the kill, not a wait
            process.kill()
        table = DeltaTable(path)
        rows = sorted(tuple(row.values()) for row in table.to_pyarrow_table().to_pylist())
        assert rows in states
        seen.add(states.index(rows))
        checksum = path / "_delta_log" / f"{table.version():020d}.crc"
        if checksum.exists():
            assert json.loads(checksum.read_text())["numFiles"] == len(table.file_uris())
        kept = KeptTable.open(path.as_uri(), {"id": "bigint", "n": "bigint"}, ["id"])
        assert kept is not None
        other = states[1 - states.index(rows)]
        kept.write(kept.difference(["id"], [(n,) for n in range(1, 5)], other), "next")
        found = DeltaTable(path).to_pyarrow_table().to_pylist()
        assert sorted(tuple(row.values()) for row in found) == other
    assert KILLS < 20 or seen == {0, 1}
