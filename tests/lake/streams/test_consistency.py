"""Tests that whatever keeps a stream from continuing is found before its start."""

import shutil
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from landed_lake import QUERY, landed_lake

from lake.settings.settings import LakeSettings, load_settings
from lake.streams.checkpoint import IDENTITY, UNFINISHED
from lake.streams.consistency import disagreements
from lake.tables.lake import Lake
from lake.tables.spec import bronze_table

TABLES = [bronze_table("o")]


@pytest.fixture
def landed(tmp_path: Path) -> LakeSettings:
    return landed_lake(tmp_path)


def test_nothing_is_found_in_a_good_lake_and_in_one_that_does_not_exist(
    landed: LakeSettings, tmp_path: Path
) -> None:
    new = load_settings(home=tmp_path / "new")
    assert [*disagreements(Lake(landed), QUERY, TABLES)] == []
    assert [*disagreements(Lake(new), QUERY, TABLES)] == []
    assert not new.lake_dir.exists()


@pytest.mark.parametrize(
    ("file", "content", "says", "remedy"),
    [
        (IDENTITY, "{", "empty or torn", "lakehouse reset"),
        ("metadata", "{", "metadata is empty or torn", "lakehouse reset"),
        (IDENTITY, '{"checkpoint": "x"}', "was written from another checkpoint", "same backup"),
        ("offsets/3", "v1", "offsets/3 is torn", "Start the stream"),
        ("commits/3", "v1", "commits/3 is torn", "Start the stream"),
        ("commits/4", "v1\n{}", "ends with batch 3, so it is older than the c", "same backup"),
        (UNFINISHED, "lakehouse replay", "`lakehouse replay` was interrupted", "Run it again"),
        (UNFINISHED, "\0", "a command that replaces tables was interrupted", "Run it again"),
    ],
)
def test_a_damaged_or_older_part_is_found(
    landed: LakeSettings, file: str, content: str, says: str, remedy: str
) -> None:
    (Path(landed.checkpoint_path(QUERY)) / file).write_text(content)
    [(what, do)] = disagreements(Lake(landed), QUERY, TABLES)
    assert says in what
    assert remedy in do


def test_a_missing_or_replaced_table_is_found(landed: LakeSettings) -> None:
    path = landed.table_path("bronze", "o")
    writer = DeltaTable(path).metadata().configuration
    shutil.rmtree(path)
    [(what, remedy)] = disagreements(Lake(landed), QUERY, TABLES)
    assert what == "the table bronze.o no longer exists"
    assert "lakehouse reset" in remedy
    schema = pa.schema([("n", pa.int64())])
    DeltaTable.create(path, schema, configuration=writer, raise_if_key_not_exists=False)
    [(what, _)] = disagreements(Lake(landed), QUERY, TABLES)
    assert what == "bronze.o is not the table to which the checkpoint has written"
