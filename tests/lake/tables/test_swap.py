"""Tests that a table takes over the contents of another one by links to its files."""

from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from lake.settings.settings import load_settings
from lake.tables.lake import Lake


def rows(path: str, version: int | None = None) -> list[dict[str, object]]:
    found = pa.table(DeltaTable(path, version=version).to_pyarrow_table()).to_pylist()
    return sorted(found, key=lambda row: str(row["id"]))


@pytest.mark.parametrize("whole", [False, True])
def test_a_table_has_the_rows_of_the_other_after_one_commit_and_not_before(
    tmp_path: Path, whole: bool
) -> None:
    lake = Lake(load_settings(home=tmp_path))
    built, seen = lake.named("gold_build", "a"), lake.named("gold", "a")
    source, path = built.path, seen.path
    write_deltalake(path, pa.table({"id": [100]}))
    for ids in ([1, 2], [3]):
        write_deltalake(source, pa.table({"id": ids}), mode="append")
    linked = seen.swap_from(built)
    linked.link()
    assert rows(path) == [{"id": 100}]
    assert linked.commit(whole=whole) == 1
    assert rows(path) == [{"id": 1}, {"id": 2}, {"id": 3}]
    assert rows(path, version=0) == [{"id": 100}]
    assert linked.version == 1

    again = seen.swap_from(built)  # as after a crash
    again.link()
    assert (again.commit(whole=whole), again.version) == (0, 1)
    DeltaTable(source).delete("id = 3")
    wider = pa.table({"id": [4], "name": ["d"]})
    write_deltalake(source, wider, mode="append", schema_mode="merge")
    later = seen.swap_from(built)
    later.link()
    later.commit(whole=whole)
    kept = [{"id": 1, "name": None}, {"id": 2, "name": None}]
    assert rows(path) == [*kept, {"id": 4, "name": "d"}] == rows(source)
    assert later.version == 2
