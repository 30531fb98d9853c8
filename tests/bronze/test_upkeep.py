"""Tests that a bronze table stays small and keeps the files that readers still need."""

import json
import os
import time
from pathlib import Path

import deltalake
import pyarrow as pa
import pytest
from deltalake import DeltaTable

from bronze.upkeep import DAY, DONE, EVERY_BATCHES, MANY_SMALL_FILES, BronzeUpkeep
from lake.settings.settings import load_settings
from lake.streams.checkpoint import claim
from lake.tables.lake import Lake
from lake.tables.spec import bronze_table

TABLE = bronze_table("orders")
SCHEMA = pa.schema([pa.field("entry", pa.int64()), pa.field("payload", pa.binary())])
NOTHING_IS_KEPT = {"delta.deletedFileRetentionDuration": "interval 0 days"}
TWO_DAYS_AGO = time.time() - 2 * DAY


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    settings = load_settings(home=tmp_path)
    return Lake(settings.model_copy(update={"history_days": 0}))


@pytest.fixture
def upkeep(lake: Lake) -> BronzeUpkeep:
    """The upkeep of a table with many small files from a day that is over."""
    path = lake.table(TABLE).path
    schema = deltalake.Schema.from_arrow(SCHEMA)
    configuration = {**TABLE.properties, **NOTHING_IS_KEPT}
    table = DeltaTable.create(path, schema=schema, configuration=configuration)
    for n in range(MANY_SMALL_FILES):
        deltalake.write_deltalake(table, rows(n), mode="append")
    checkpoint = claim(lake.settings, TABLE.full_name)
    found = BronzeUpkeep(lake, lake.table(TABLE), checkpoint)
    found.run(1)
    os.utime(Path(checkpoint.path) / DONE, (TWO_DAYS_AGO, TWO_DAYS_AGO))
    return found


def rows(n: int) -> pa.Table:
    return pa.table({"entry": [n], "payload": [str(n).encode()]}, schema=SCHEMA)


def files(lake: Lake) -> int:
    return len(list(Path(lake.table(TABLE).path).glob("*.parquet")))


def reader(lake: Lake, version: int | None) -> None:
    """Write the checkpoint of a query that has reached a version, or None if it has just begun."""
    folder = Path(lake.settings.checkpoint_path("silver"))
    offset = {"reservoirId": str(DeltaTable(lake.table(TABLE).path).metadata().id)}
    for log in ("offsets", "commits"):
        (folder / log).mkdir(parents=True)
    text = "\n".join(["v1", "{}", json.dumps({**offset, "reservoirVersion": version or 0})])
    (folder / "offsets" / "7").write_text(text)
    if version is not None:
        (folder / "commits" / "7").write_text('v1\n{"nextBatchWatermarkMs":0}')


def commit_file(lake: Lake, version: int) -> Path:
    return Path(lake.table(TABLE).path) / "_delta_log" / f"{version:020d}.json"


def test_small_files_are_compacted_and_the_rows_stay(upkeep: BronzeUpkeep, lake: Lake) -> None:
    upkeep.run(EVERY_BATCHES - 1)
    assert len(DeltaTable(lake.table(TABLE).path).file_uris()) == MANY_SMALL_FILES
    upkeep.run(EVERY_BATCHES)
    table = DeltaTable(lake.table(TABLE).path)
    assert len(table.file_uris()) == 1
    everything = pa.concat_tables(rows(n) for n in range(MANY_SMALL_FILES))
    assert pa.table(table.to_pyarrow_table()).sort_by("entry").cast(SCHEMA) == everything
    actions = map(json.loads, commit_file(lake, table.version()).read_text().splitlines())
    changes = [
        each["dataChange"] for action in actions for each in action.values() if "path" in each
    ]
    assert len(changes) == MANY_SMALL_FILES + 1
    assert not any(changes)


def test_files_of_old_versions_are_deleted_once_a_day(upkeep: BronzeUpkeep, lake: Lake) -> None:
    upkeep.run(EVERY_BATCHES)
    assert files(lake) == 1
    deltalake.write_deltalake(lake.table(TABLE).path, rows(0), mode="append")
    DeltaTable(lake.table(TABLE).path).optimize.compact()
    upkeep.run(1)
    assert files(lake) == 3


@pytest.mark.parametrize("stand", ["near", "caught up", "behind", "before the log", "not begun"])
def test_files_that_a_query_still_has_to_read_are_kept(
    upkeep: BronzeUpkeep, lake: Lake, stand: str
) -> None:
    # The next version to read is the one after the compaction, which has not run yet.
    versions = {"caught up": DeltaTable(lake.table(TABLE).path).version() + 2, "not begun": None}
    reader(lake, versions.get(stand, 5))
    if stand == "behind":
        os.utime(commit_file(lake, 5), (TWO_DAYS_AGO, TWO_DAYS_AGO))
    if stand == "before the log":
        DeltaTable(lake.table(TABLE).path).create_checkpoint()
        commit_file(lake, 5).unlink()
    upkeep.run(EVERY_BATCHES)
    assert len(DeltaTable(lake.table(TABLE).path).file_uris()) == 1
    assert files(lake) == (1 if stand in ("near", "caught up") else 1 + MANY_SMALL_FILES)
