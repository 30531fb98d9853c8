"""Tests the statistics of a table's files, which are read from its log."""

import datetime as dt
from pathlib import Path

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake

from lake.tables.log import TableFiles, files_of, newest

NOON = dt.datetime(2026, 1, 2, 12, 0, 0, 123456, tzinfo=dt.timezone.utc)


def rows(*hours: int) -> pa.Table:
    times = pa.array([NOON + dt.timedelta(hours=hour) for hour in hours], pa.timestamp("us", "UTC"))
    return pa.table({"at": times, "n": list(hours)})


def test_rows_files_and_bytes_are_those_of_the_newest_version(tmp_path: Path) -> None:
    write_deltalake(tmp_path, rows(1, 2))
    write_deltalake(tmp_path, rows(3), mode="append")
    found = TableFiles(DeltaTable(tmp_path))
    assert (found.rows, found.count) == (3, 2)
    assert found.size == sum(file.stat().st_size for file in tmp_path.glob("*.parquet"))
    write_deltalake(tmp_path, rows(9), mode="overwrite")
    assert TableFiles(DeltaTable(tmp_path)).rows == 1


def test_the_latest_instant_is_known_to_the_millisecond(tmp_path: Path) -> None:
    write_deltalake(tmp_path, rows(5, 1))
    write_deltalake(tmp_path, rows(2), mode="append")
    files = files_of(DeltaTable(tmp_path))
    latest = NOON + dt.timedelta(hours=5)
    assert newest(files, "at") in (latest, latest.replace(microsecond=123000))
    assert TableFiles(DeltaTable(tmp_path)).newest("at") == newest(files, "at")
    assert newest(files, "absent") is None


def test_an_empty_table_has_no_files(tmp_path: Path) -> None:
    DeltaTable.create(tmp_path, rows().schema)
    found = TableFiles(DeltaTable(tmp_path))
    assert (found.rows, found.count, found.size, found.newest("at")) == (0, 0, 0, None)
