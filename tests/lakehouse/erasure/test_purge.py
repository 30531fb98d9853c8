"""Tests that a purge keeps only the files of the current version, unchanged; without Java."""

from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from lake.settings.settings import load_settings
from lakehouse.erasure.purge import delete_torn, purge
from pulsar_spark.errors import LakehouseError


def test_a_purged_table_keeps_its_rows_and_version_but_no_history(tmp_path: Path) -> None:
    settings = load_settings(home=tmp_path)
    path = tmp_path / "a table"
    for n in range(3):
        write_deltalake(path, pa.table({"n": [n], "who": [f"secret{n}"]}), mode="overwrite")
    write_deltalake(path, pa.table({"n": [9], "who": ["nobody"]}), mode="append")
    (path / "_change_data").mkdir()
    (path / "_change_data" / "cdc-1.parquet").write_bytes(b"secret0")
    (path / "deletion_vector_1.bin").write_bytes(b"of today, perhaps")
    before = DeltaTable(path)
    rows, version = before.to_pyarrow_table().sort_by("n").to_pylist(), before.version()
    assert purge(settings, str(path)) > 0
    after = DeltaTable(path)
    assert after.to_pyarrow_table().sort_by("n").to_pylist() == rows
    assert after.version() == version
    left = [file for file in path.rglob("*") if file.is_file()]
    assert not [f for f in left if b"secret0" in f.read_bytes() or b"secret1" in f.read_bytes()]
    assert (path / "deletion_vector_1.bin").exists()
    assert purge(settings, str(path)) == 0

    write_deltalake(path, pa.table({"n": [10], "who": ["later"]}), mode="append")
    assert DeltaTable(path).version() == version + 1
    next(path.glob("*.parquet")).unlink()
    with pytest.raises(LakehouseError, match="No file of the table was deleted"):
        purge(settings, str(path))
    assert (path / "_delta_log" / f"{version:020}.json").exists()


def test_torn_files_are_deleted_and_no_others(tmp_path: Path) -> None:
    settings = load_settings(home=tmp_path)
    table = Path(settings.table_path("silver", "a table"))
    write_deltalake(table, pa.table({"n": [1]}))
    [live] = table.glob("*.parquet")
    whole = live.read_bytes()
    begun = Path(settings.table_path("gold", "begun"))
    (begun / "_delta_log").mkdir(parents=True)
    torn = [
        table / "part-2.parquet",
        table / "_change_data" / "cdc-1.parquet",
        begun / "part-1.parquet",
    ]
    others = [table / "part-3.parquet", begun / "part-2.parquet", begun / "notes.csv"]
    torn[1].parent.mkdir()
    for file in torn:
        file.write_bytes(whole[:-1])
    torn[2].write_bytes(b"")
    for file in others:
        file.write_bytes(whole)
    live.write_bytes(whole[:-1])
    assert delete_torn(settings) == len(torn)
    assert [file for file in torn if file.exists()] == []
    assert [file for file in (live, *others) if not file.exists()] == []
