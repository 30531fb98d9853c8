"""Tests what the page of a table shows."""

import datetime as dt
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from quiet_lake import UTC, QuietLake
from served_console import quiet_settings

from gold.dbt.manifest import Manifest
from lakehouse.console.masking import Masking
from lakehouse.console.tables import LONGEST_CELL, known_tables, shown, table_page

NOW = dt.datetime(2026, 3, 1, 12, 0, 5, 250_000, tzinfo=UTC)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, None),
        (True, "true"),
        (Decimal("12.50"), "12.50"),
        (NOW, "2026-03-01 12:00:05.250Z"),
        (dt.date(2026, 3, 1), "2026-03-01"),
        (b"\xffa", "\\xffa"),
        ({"a": [1, b"x"], "t": NOW}, '{"a": [1, "x"], "t": "2026-03-01 12:00:05.250000+00:00"}'),
        ([("k", 1)], '[["k", 1]]'),
        ("x" * 999, "x" * (LONGEST_CELL - 1) + "…"),
    ],
)
def test_values_are_shown_as_text(value: Any, text: str | None) -> None:
    assert shown(value) == text


def test_a_page_tells_what_the_log_of_the_table_says(tmp_path: Path) -> None:
    quiet = QuietLake(quiet_settings(tmp_path))
    quiet.land("orders", [b'{"a": 1}'] * 30, NOW)
    quiet.land("orders", [b"<a>"] * 2, NOW)
    table = known_tables(quiet.lake)["bronze.orders"]
    page = table_page(table, Manifest(tmp_path), Masking(quiet.lake.topics, shows_all=False))
    log = DeltaTable(table.path)
    assert (page.rows, page.files, page.newest_version) == (32, 2, log.version())
    assert page.size == sum(log.get_add_actions(flatten=True)["size_bytes"].to_pylist())
    assert page.description.startswith("Every message of the topic orders")
    assert [each.number for each in page.versions] == [2, 1, 0]
    assert page.versions[0].changes == "num_added_files 1, num_added_rows 2"
    assert len(page.sample) == 20
    types = {each.name: each.type for each in page.columns}
    assert types["ledger"] == "bigint"
    assert types["payload"] == "binary"
    assert (
        types["properties"].startswith("array<struct<key: string") or "map" in types["properties"]
    )
    assert {each.name: each.nullable for each in page.columns}["publish_time"] is False


def test_a_table_whose_files_are_gone_still_has_a_page(tmp_path: Path) -> None:
    quiet = QuietLake(quiet_settings(tmp_path))
    quiet.land("orders", [b"{}"], NOW)
    table = known_tables(quiet.lake)["bronze.orders"]
    for file in Path(table.path).glob("*.parquet"):
        file.unlink()
    page = table_page(table, Manifest(tmp_path), Masking(quiet.lake.topics, shows_all=False))
    assert page.sample == []
    assert page.problem.startswith("The rows cannot be read: ")
