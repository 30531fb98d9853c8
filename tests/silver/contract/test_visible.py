"""Tests which rows and columns of each kind of table readers see."""

from pathlib import Path

import pytest
from topic import GOOD, declared

from lake.tables.spec import TableSpec
from silver.contract.tables import enriched_table, history_table, state_table
from silver.contract.visible import hiding_columns, shown_columns

HISTORY = GOOD.replace('key = ["id"]', 'key = ["id"]\nhistory = true', 1)
COLLECTED = GOOD.replace('key = ["id"]', 'key = ["id"]\ntombstones_days = 1', 1)


def names(table: TableSpec) -> list[str]:
    return [column.name for column in table.columns]


def test_readers_see_the_fields_of_rows_that_are_not_deleted(tmp_path: Path) -> None:
    topics = declared(tmp_path, HISTORY)
    users, orders = topics.topics["users"], topics.topics["orders"]
    state, versions = names(state_table(users)), names(history_table(users))
    enriched = names(enriched_table(orders, topics))
    assert hiding_columns(state) == ["is_deleted"]
    assert shown_columns(state) == ["id", "parent_user_id"]
    assert hiding_columns(versions) == []  # a deleted version is one of them
    assert shown_columns(versions) == [
        *("id", "parent_user_id", "is_deleted", "valid_from", "valid_to"),
    ]
    assert hiding_columns(enriched) == []
    assert shown_columns(enriched) == ["id", "user_id", "user"]
    marked = names(state_table(declared(tmp_path, COLLECTED).topics["users"]))
    assert hiding_columns(marked) == ["is_deleted", "mark"]


@pytest.mark.parametrize("columns", [["id", "position", "publish_time", "mark"], ["id"]])
def test_readers_see_all_of_a_table_that_is_not_silvers(columns: list[str]) -> None:
    assert hiding_columns(columns) == []
    assert shown_columns(columns) == columns
