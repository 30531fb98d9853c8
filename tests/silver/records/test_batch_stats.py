"""Tests that batch statistics come from bronze's log, or are missing."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from lake.settings.settings import load_settings
from lake.tables.lake import Lake
from lake.tables.spec import bronze_table
from silver.records import batch_stats
from silver.records.batch_stats import BatchStats

TABLE = bronze_table("orders")


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    """A lake whose table adds one message in version 0, two in version 1, and so on."""
    lake = Lake(load_settings(home=tmp_path))
    for count in range(1, 6):
        write_deltalake(lake.table(TABLE).path, messages(count), mode="append")
    return lake


def messages(count: int) -> pa.Table:
    return pa.table({"payload": [b"{}"] * count})


def offset(lake: Lake, version: int, **other: Any) -> Mapping[str, Any]:
    """Return the offset of a Spark stream that reads this version next."""
    identity = str(DeltaTable(lake.table(TABLE).path).metadata().id)
    found = {"reservoirId": identity, "reservoirVersion": version, "index": -1}
    return {**found, "isStartingVersion": False, **other}


def read(lake: Lake, begin: Mapping[str, Any] | None, end: Mapping[str, Any]) -> Any:
    return BatchStats.read(lake, {"orders": (begin, end)})


def test_messages_and_bytes_cover_the_versions_between_two_offsets(
    lake: Lake,
) -> None:
    found = read(lake, offset(lake, 1), offset(lake, 4))
    assert found.messages == {"orders": 2 + 3 + 4}
    actions = pa.table(DeltaTable(lake.table(TABLE).path).get_add_actions())
    sizes = dict(
        zip(actions["num_records"].to_pylist(), actions["size_bytes"].to_pylist(), strict=True)
    )
    assert found.size == sizes[2] + sizes[3] + sizes[4]
    assert BatchStats.read(lake, {}) == BatchStats({}, 0)


def test_rewritten_rows_are_not_counted(lake: Lake) -> None:
    DeltaTable(lake.table(TABLE).path).optimize.compact()
    write_deltalake(lake.table(TABLE).path, messages(7), mode="append")
    assert read(lake, offset(lake, 4), offset(lake, 7)).messages == {"orders": 5 + 7}


@pytest.mark.parametrize(
    "begin", [None, {"index": 3}, {"isStartingVersion": True}, {"reservoirId": "another"}]
)
def test_parts_of_versions_and_unusable_starts_have_no_stats(
    lake: Lake, begin: dict[str, Any] | None
) -> None:
    start = None if begin is None else offset(lake, 1, **begin)
    assert read(lake, start, offset(lake, 4)) is None
    assert read(lake, offset(lake, 1), offset(lake, 4, index=2)) is None


def test_a_commit_that_deletes_rows_does_not_count(lake: Lake) -> None:
    begins = {version: offset(lake, version) for version in (4, 5, 6)}
    DeltaTable(lake.table(TABLE).path).delete()
    assert read(lake, begins[5], begins[6]).messages == {"orders": 0}
    assert read(lake, begins[4], begins[6]) == read(lake, begins[4], begins[5])


def test_there_are_no_stats_if_the_log_is_gone(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    begins = {version: offset(lake, version) for version in (1, 3, 4, 5)}
    (Path(lake.table(TABLE).path) / "_delta_log" / f"{2:020d}.json").unlink()
    assert read(lake, begins[1], begins[4]) is None
    monkeypatch.setattr(batch_stats, "MANY_VERSIONS", 1)
    assert read(lake, begins[3], begins[4]).messages == {"orders": 4}
    assert read(lake, begins[3], begins[5]) is None


def test_few_means_few_messages_and_few_bytes() -> None:
    assert BatchStats({"orders": batch_stats.FEW - 1, "users": 1}, batch_stats.SMALL).are_few
    assert not BatchStats({"orders": batch_stats.FEW, "users": 1}, 0).are_few
    assert not BatchStats({"orders": 1}, batch_stats.SMALL + 1).are_few
