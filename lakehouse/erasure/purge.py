"""Deletes the past of a Delta table: all files that the current version does not need.

These are data files, change feeds and the log. After that, time travel, change feeds and streams
cannot start at an older version.

VACUUM is not enough: it keeps all files that the log still names. The log itself holds values, in
the conditions of commands and in statistics (the minimum and maximum of a column). Therefore old
data files and old log files are deleted directly, without a commit, because others refer to the
current version by its number.
"""

import re
from pathlib import Path

from deltalake import DeltaTable
from pyspark.sql import SparkSession

from lake.quoting import delta_at, literal
from lake.settings.settings import LakeSettings
from lake.tables.log import files_of
from lake.tables.storage import delete_file, files_below, in_bucket, is_table, open_table
from pulsar_spark.errors import LakehouseError

LOG = "_delta_log"
VERSION = re.compile(r"^\.?(\d{20})\.")
PARQUET_END = b"PAR1"


def commit_nothing(spark: SparkSession, path: str, note: str) -> None:
    """Make a commit that contains no data of rows, because `purge` must keep the last commit."""
    spark.sql(
        f"ALTER TABLE {delta_at(path)} SET TBLPROPERTIES ('lakehouse.purged' = {literal(note)})"
    )


def purge(settings: LakeSettings, path: str) -> int:
    """Delete all files that the current version does not need, and return their number.

    The last commit should come from `commit_nothing`. There must be no writers, and readers of
    older versions fail. A bucket with versioning keeps what is deleted: see `delete_old_versions`.

    Raises:
        LakehouseError: a file of the current version is missing. Nothing is deleted then.
    """
    table = open_table(settings, path)
    table.create_checkpoint()
    live = _live(table)
    there = files_below(settings, path)
    if lost := sorted(live - there.keys()):
        message = (
            f"{path}: the current version needs {lost[0]}, which is missing, so it is unclear "
            "which files can be deleted. No file of the table was deleted. Restore the missing "
            "file from a backup."
        )
        raise LakehouseError(message)
    gone = [name for name in there if _is_past(name, live, table.version())]
    for name in gone:
        delete_file(settings, f"{path}/{name}")
    return len(gone)


def delete_torn(settings: LakeSettings) -> int:
    """Delete truncated Parquet files, which killed writers left behind. Returns their number.

    No version contains these files, and they cannot be read or searched. A truncated file that the
    current version names was damaged later, and is kept. There must be no writers. A bucket has no
    truncated files, because objects appear only once they are complete.
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
    """Whether the current version of a file's table contains the file."""
    tables = Path(settings.tables)
    folder = tables.joinpath(*file.relative_to(tables).parts[:2])
    if not is_table(settings, folder):
        return False
    return str(file.relative_to(folder)) in _live(open_table(settings, folder))


def _live(table: DeltaTable) -> set[str]:
    """The paths of the data files in the loaded version of a table."""
    return set(files_of(table)["path"].to_pylist())


def _is_past(name: str, live: set[str], version: int) -> bool:
    """Whether a file is an old data file, or a log file of an older version.

    Deletion vectors are kept. They contain no values, and the current version may need them.
    """
    folder, _, file = name.rpartition("/")
    if folder == LOG:
        found = VERSION.match(file)
        return found is not None and int(found[1]) < version
    return not folder.startswith(LOG) and not file.endswith(".bin") and name not in live
