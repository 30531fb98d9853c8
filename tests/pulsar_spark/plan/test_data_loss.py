"""Tests the audit table of accepted losses."""

from pathlib import Path

from deltalake import DeltaTable

from pulsar_spark.offsets import Position
from pulsar_spark.plan.data_loss import LossTable
from pulsar_spark.records import MANY_FILES

APPENDS = MANY_FILES + 8


def place(entry: int) -> Position:
    return Position(1, entry, -1)


def test_many_losses_fit_in_few_files_and_all_are_known(tmp_path: Path) -> None:
    table = LossTable(str(tmp_path / "data_loss"))
    for number in range(APPENDS):
        table.record("s", "p", (place(number), place(number + 1)), "dropped")
        assert len(DeltaTable(table.path).file_uris()) <= MANY_FILES
    assert table.recorded("s", "p", place(0)) == place(APPENDS)


def test_a_loss_is_recorded_once_for_each_subscription_and_partition(tmp_path: Path) -> None:
    table = LossTable(str(tmp_path / "data_loss"))
    for _ in range(2):
        table.record("s", "p", (place(1), place(5)), "expired")
        table.record("s", "other", (place(1), None), "recreated")
    rows = DeltaTable(table.path).to_pyarrow_table().to_pylist()
    assert sorted((row["topic_partition"], row["up_to"], row["reason"]) for row in rows) == [
        ("other", None, "recreated"),
        ("p", "1:5:-1", "expired"),
    ]
    assert table.recorded("s", "p", place(1)) == place(5)
    assert table.recorded("s", "p", place(2)) == place(2)
    assert table.recorded("another", "p", place(1)) == place(1)
    assert table.recorded("s", "other", place(1)) == place(1), "its end is unknown"
