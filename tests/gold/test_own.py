"""Tests which commits to a table prevent a build from publishing it."""

from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from gold.errors import GoldError
from gold.own import marked, require_own_commits

ROW = pa.table({"id": [1]})


@pytest.fixture
def table(tmp_path: Path) -> DeltaTable:
    """A table at version 2, written by another process."""
    for _ in range(3):
        write_deltalake(tmp_path, ROW, mode="append")
    return DeltaTable(tmp_path)


def test_a_table_that_only_the_build_has_changed_is_published(table: DeltaTable) -> None:
    require_own_commits("m", table, 2, "mine")
    for _ in range(2):
        write_deltalake(table, ROW, mode="append", commit_properties=marked("mine"))
    require_own_commits("m", table, 2, "mine")


@pytest.mark.parametrize("last", ["mine", "theirs"])
def test_a_foreign_commit_is_refused_even_before_one_of_the_build(
    last: str, table: DeltaTable
) -> None:
    for build in ("theirs", last):
        write_deltalake(table, ROW, mode="append", commit_properties=marked(build))
    with pytest.raises(GoldError, match=r"gold_build.m was changed \(WRITE\) by something else"):
        require_own_commits("m", table, 2, "mine")


def test_a_table_recreated_by_another_writer_is_refused(tmp_path: Path) -> None:
    table = DeltaTable.create(tmp_path, ROW.schema, commit_properties=marked("theirs"))
    write_deltalake(table, ROW, mode="append", commit_properties=marked("mine"))
    with pytest.raises(GoldError, match=r"gold_build.m was changed \(CREATE TABLE\)"):
        require_own_commits("m", table, 5, "mine")


@pytest.mark.parametrize("since", [-1, 5])
def test_commits_before_the_build_recreated_a_table_do_not_matter(
    since: int, table: DeltaTable
) -> None:
    schema, mine = ROW.schema, marked("mine")
    DeltaTable.create(table.table_uri, schema, mode="overwrite", commit_properties=mine)
    write_deltalake(table.table_uri, ROW, mode="append", commit_properties=mine)
    require_own_commits("m", DeltaTable(table.table_uri), since, "mine")
