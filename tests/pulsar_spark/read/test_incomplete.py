"""Tests the table of chunked messages of which only a part was read."""

import datetime as dt
from pathlib import Path

from pulsar_spark.offsets import Position
from pulsar_spark.read.incomplete import (
    BOUND_MS,
    COMPLETE,
    LOST,
    OPEN,
    Incomplete,
    IncompleteTable,
)

NOW = 1_700_000_000_000


def note(message: str, first: int, state: str = OPEN, at: int = NOW, part: int = 0) -> Incomplete:
    place = Position(1, first), Position(1, first + 1)
    return Incomplete(f"t-partition-{part}", message, *place, 2, 3, at, state)


def test_the_earliest_chunk_that_is_still_needed_is_known_by_partition(tmp_path: Path) -> None:
    table = IncompleteTable(str(tmp_path / "incomplete"))
    assert table.first_chunks(NOW) == {}
    table.record([note("a", 7), note("b", 4), note("c", 9, part=1), note("gone", 1, LOST)])
    assert {n: p.entry for n, p in table.first_chunks(NOW).items()} == {
        "t-partition-0": 4,
        "t-partition-1": 9,
    }
    table.record([note("b", 4, COMPLETE)])
    assert table.first_chunks(NOW)["t-partition-0"].entry == 7
    assert table.first_chunks(NOW + BOUND_MS) == {}, "nothing is waited for so long"


def test_messages_that_are_lost_or_open_for_long_are_listed(tmp_path: Path) -> None:
    table = IncompleteTable(str(tmp_path / "incomplete"))
    table.record([note("open", 1), note("done", 2), note("lost", 3, LOST)])
    table.record([note("done", 2, COMPLETE)])
    listed = [row["message"] for row in table.still_open(dt.timedelta())]
    assert sorted(listed) == ["lost", "open"]
    assert [row["message"] for row in table.still_open(dt.timedelta(hours=1))] == ["lost"]


def test_nothing_is_recorded_without_a_table_or_a_message(tmp_path: Path) -> None:
    IncompleteTable(None).record([note("a", 1)])
    IncompleteTable(str(tmp_path / "none")).record([])
    assert [*tmp_path.iterdir()] == []
    assert IncompleteTable(None).still_open(dt.timedelta()) == []
