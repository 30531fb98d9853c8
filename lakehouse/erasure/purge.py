"""Makes a Delta table forget its past: all that the version of today does not need is deleted, data
files, change feeds and the log. Time travel, feeds and streams that begin before it end here.

VACUUM keeps what the log still names, and the log keeps statistics, the least and the greatest
value of a column, and the conditions of commands; so both go, and no commit is made, as others hold
the number of the version.
"""

import re
from pathlib import Path

from deltalake import DeltaTable
from pyspark.sql import SparkSession

from lake.settings.settings import LakeSettings
from lake.tables.log import files_of
from lake.tables.sql import delta_at, literal
from lake.tables.storage import delete_file, files_below, in_bucket, is_table, open_table
from pulsar_spark.errors import LakehouseError

LOG = "_delta_log"
VERSION = re.compile(r"^\.?(\d{20})\.")
PARQUET_END = b"PAR1"


def commit_nothing(spark: SparkSession, path: str, note: str) -> None:
    """Make a version whose commit tells of no row, as `purge` must keep the last one."""
    spark.sql(
        f"ALTER TABLE {delta_at(path)} SET TBLPROPERTIES ('lakehouse.purged' = {literal(note)})"
    )


def purge(settings: LakeSettings, path: str) -> int:
    """Delete what is no part of the version of today; returns how many files there were.

    The last commit should be one of `commit_nothing`. Nobody may write meanwhile, and who reads an
    older version fails. A bucket may keep what is deleted in it: see `delete_old_versions`.

    Raises:
        LakehouseError: a file of today is absent.
    """
    table = open_table(settings, path)
    table.create_checkpoint()
    live = _live(table)
    there = files_below(settings, path)
    if lost := sorted(live - there.keys()):
        message = (
            f"{path}: the version of today names {lost[0]}, which is not there, so what may be "
            "deleted cannot be told. Nothing of it was deleted; restore the file from a backup."
        )
        raise LakehouseError(message)
    gone = [name for name in there if _is_past(name, live, table.version())]
    for name in gone:
        delete_file(settings, f"{path}/{name}")
    return len(gone)


def delete_torn(settings: LakeSettings) -> int:
    """Delete Parquet files without an end, which killed writers left; returns how many there were.

    No version has them, nor can they be read and searched. One that the version of today names was
    damaged later, and stays. Nobody may write meanwhile. A bucket has none: objects appear whole.
    """
    if in_bucket(settings):
        return 0
    torn = [file for file in Path(settings.tables).rglob("*.parquet") if not _has_end(file)]
    gone = [file for file in torn if not _is_live(settings, file)]
    for file in gone:
        file.unlink()
    return len(gone)


def _has_end(file: Path) -> bool:
    with file.open("rb") as content:
        content.seek(max(0, file.stat().st_size - len(PARQUET_END)))
        return content.read() == PARQUET_END


def _is_live(settings: LakeSettings, file: Path) -> bool:
    """Whether the version of today of the table whose folder a file is in names it."""
    tables = Path(settings.tables)
    folder = tables.joinpath(*file.relative_to(tables).parts[:2])
    if not is_table(settings, folder):
        return False
    return str(file.relative_to(folder)) in _live(open_table(settings, folder))


def _live(table: DeltaTable) -> set[str]:
    """The paths of the data files of a version."""
    return set(files_of(table)["path"].to_pylist())


def _is_past(name: str, live: set[str], version: int) -> bool:
    """Whether a file is data of the past, or a file of the log of an older version.

    A deletion vector has no values, and may be of today.
    """
    folder, _, file = name.rpartition("/")
    if folder == LOG:
        found = VERSION.match(file)
        return found is not None and int(found[1]) < version
    return not folder.startswith(LOG) and not file.endswith(".bin") and name not in live
