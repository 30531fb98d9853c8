"""Tests that tables to which tasks append keep few files and drop rows no longer needed."""

import datetime as dt
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from deltalake import DeltaTable

from pulsar_spark.offsets import Position
from pulsar_spark.read import incomplete
from pulsar_spark.read.incomplete import COMPLETE, LOST, OPEN, Incomplete, IncompleteTable
from pulsar_spark.records import MANY_FILES

APPENDS = MANY_FILES + 8


def place(entry: int) -> Position:
    return Position(1, entry, -1)


def chunks(name: str, state: str) -> Incomplete:
    return Incomplete("t-partition-0", name, place(1), place(2), 2, 3, 0, state)


def files(table: str) -> int:
    return len(DeltaTable(table).file_uris())


def test_completed_chunked_messages_are_dropped_after_days_and_the_others_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = str(tmp_path / "incomplete")
    table, now = IncompleteTable(path), dt.datetime.now(dt.timezone.utc)

    class Clock(dt.datetime):
        past = dt.timedelta(days=8)

        @classmethod
        def now(cls, tz: dt.tzinfo | None = None) -> dt.datetime:  # type: ignore[override]
            return now - cls.past

    monkeypatch.setattr(incomplete.dt, "datetime", Clock)
    table.record([chunks("waits", OPEN), chunks("late", OPEN), chunks("gone", LOST)])
    for number in range(APPENDS):
        name = f"old-{number}"
        table.record([chunks(name, OPEN), chunks(name, COMPLETE)])
    Clock.past = dt.timedelta()
    table.record([chunks("late", COMPLETE)])
    for number in range(APPENDS):
        table.record([chunks(f"new-{number}", COMPLETE)])
        assert files(path) <= MANY_FILES
    open_ = [row["message"] for row in table.still_open(dt.timedelta())]
    assert sorted(open_) == ["gone", "waits"]
    names = DeltaTable(path).to_pyarrow_table(columns=["message"])["message"].to_pylist()
    assert not [name for name in names if name.startswith("old-")]
    assert sorted(name for name in names if name.startswith("new-")) == sorted(
        f"new-{number}" for number in range(APPENDS)
    )


def test_tasks_that_append_at_the_same_time_lose_nothing(tmp_path: Path) -> None:
    path = str(tmp_path / "incomplete")
    IncompleteTable(path).record([chunks("first", OPEN)])
    names = [f"m-{number}" for number in range(APPENDS)]
    with ThreadPoolExecutor(4) as tasks:
        list(tasks.map(lambda name: IncompleteTable(path).record([chunks(name, OPEN)]), names))
    found = [row["message"] for row in IncompleteTable(path).still_open(dt.timedelta())]
    assert sorted(found) == sorted(["first", *names])
    assert files(path) < 2 * MANY_FILES
