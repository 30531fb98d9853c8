"""Tests that a copy of the named files is the version: delta-rs reads and continues it."""

import shutil
import tarfile
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from lake.settings.settings import load_settings
from lake.tables.version_files import files_of_version
from pulsar_spark.errors import LakehouseError

SETTINGS = load_settings()  # of tables in a folder
RELEASES = Path(__file__).parents[2] / "releases"


def copy(table: Path, version: int, target: Path) -> DeltaTable:
    for name in files_of_version(SETTINGS, table, version):
        (target / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(table / name, target / name)
    return DeltaTable(target)


def rows(table: DeltaTable) -> list[str]:
    return sorted(map(str, pa.table(table.scan()).to_pylist()))


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """A table with appends, deletes, two checkpoints of the log and files of no version."""
    folder = tmp_path / "a table"
    for number in range(12):
        write_deltalake(
            folder, pa.table({"n": [number], "day": [f"d {number % 2}"]}), mode="append"
        )
        if number in (3, 7):
            DeltaTable(folder).create_checkpoint()
        if number == 5:
            DeltaTable(folder).delete("n < 3")
    (folder / "part-begun.parquet").write_bytes(b"PAR")
    return folder


def test_a_copy_of_each_version_has_its_rows_and_no_other_files(
    table: Path, tmp_path: Path
) -> None:
    last = DeltaTable(table).version()
    for version in range(last + 1):
        target = tmp_path / str(version)
        copied = copy(table, version, target)
        wanted = DeltaTable(table, version=version)
        assert copied.version() == version
        assert rows(copied) == rows(wanted)
        assert {*target.glob("*.parquet")} == {
            target / Path(uri).name for uri in wanted.file_uris()
        }
    names = files_of_version(SETTINGS, table, last)
    assert len([name for name in names if name.endswith(".json")]) == last - 8, names


def test_a_copy_can_be_continued(table: Path, tmp_path: Path) -> None:
    copied = copy(table, 9, tmp_path / "copied")
    write_deltalake(copied, pa.table({"n": [99], "day": ["d"]}), mode="append")
    assert DeltaTable(tmp_path / "copied").version() == 10
    assert len(rows(DeltaTable(tmp_path / "copied"))) == len(rows(DeltaTable(table, version=9))) + 1


def test_a_partitioned_table_with_odd_values(tmp_path: Path) -> None:
    folder = tmp_path / "parts"
    odd = pa.table({"n": [1, 2, 3], "day": ["a b/ü", "x=%20", "c"]})
    write_deltalake(folder, odd, partition_by=["day"])
    assert rows(copy(folder, 0, tmp_path / "copied")) == rows(DeltaTable(folder))


def test_deletion_vectors_of_spark_are_copied(tmp_path: Path) -> None:
    with tarfile.open(RELEASES / "0.1.0.tar.xz") as archive:
        archive.extractall(tmp_path, filter="data")
    table = tmp_path / "silver" / "lake" / "silver" / "users_state"
    version = DeltaTable(table).version()
    assert [n for n in files_of_version(SETTINGS, table, version) if n.endswith(".bin")]
    assert rows(copy(table, version, tmp_path / "copied")) == rows(DeltaTable(table))


def test_a_log_that_is_no_longer_complete_is_noticed(table: Path) -> None:
    (table / "_delta_log" / f"{10:020d}.json").unlink()
    assert files_of_version(SETTINGS, table, 9)
    with pytest.raises(FileNotFoundError):
        files_of_version(SETTINGS, table, 11)


def test_a_file_outside_the_table_is_refused(table: Path) -> None:
    commit = table / "_delta_log" / f"{12:020d}.json"
    commit.write_text(commit.read_text().replace('"path":"', '"path":"file:///elsewhere/'))
    with pytest.raises(LakehouseError, match="outside its folder"):
        files_of_version(SETTINGS, table, 12)
