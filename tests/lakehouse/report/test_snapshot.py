"""Tests the SQL of the report on tables without Spark."""

from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from lake.settings.settings import load_settings
from lake.tables.lake import Lake
from lakehouse.report.snapshot import NotShownError, Snapshot


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    found = Lake(load_settings(home=tmp_path))
    for name, rows in (("users", [1, 2]), ("orders", [2, 2, 3])):
        path = Path(found.settings.table_path("silver", name))
        path.mkdir(parents=True)
        write_deltalake(path, pa.table({"id": rows}))
    return found


def test_tables_are_joined_as_of_one_moment(lake: Lake) -> None:
    snapshot = Snapshot(lake)
    path = lake.settings.table_path("silver", "orders")
    write_deltalake(path, pa.table({"id": [1]}), mode="append")
    both = "silver.users join silver.orders using (id)"
    joined = f"select id, count(*) as n from {both} group by 1"
    assert snapshot.rows(joined) == [{"id": 2, "n": 2}]
    assert Snapshot(lake).row("select sum(id) as s from silver.orders") == {"s": 8}


def test_an_absent_table_or_column_is_explained(lake: Lake) -> None:
    missing = "gold.x is not built yet. Run `lakehouse gold --avail"
    with pytest.raises(NotShownError, match=missing) as absent:
        Snapshot(lake).rows("select 1 from gold.x")
    with pytest.raises(NotShownError, match="the query is refused: .*nothing") as refused:
        Snapshot(lake).rows("select nothing from silver.users")
    assert (absent.value.is_missing, refused.value.is_missing) == (True, False)
