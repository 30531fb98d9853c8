"""Makes a Delta table forget its past: all that the version of today does not need is deleted, data
files, change feeds and the log. Time travel, feeds and streams that begin before it end here.

VACUUM keeps what the log still names, and the log keeps statistics, the least and the greatest
value of a column, and the conditions of commands; so both go, and no commit is made, as others hold
the number of the version.
"""

import re
from pathlib import Path

import pyarrow as pa
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from bronze.errors import LakehouseError

LOG = "_delta_log"
VERSION = re.compile(r"^\.?(\d{20})\.")


def commit_nothing(spark: SparkSession, path: str | Path, note: str) -> None:
    """Make a version whose commit tells of no row, as `purge` must keep the last one."""
    quoted = str(path).replace("`", "``")
    spark.sql(f"ALTER TABLE delta.`{quoted}` SET TBLPROPERTIES ('lakehouse.purged' = '{note}')")


def purge(path: str | Path) -> int:
    """Delete what is no part of the version of today; returns how many files there were.

    The last commit should be one of `commit_nothing`. Nobody may write meanwhile, and who reads an
    older version fails.

    Raises:
        LakehouseError: a file of today is absent.
    """
    folder = Path(path).resolve()
    table = DeltaTable(folder)
    table.create_checkpoint()
    live = {folder / path for path in pa.table(table.get_add_actions())["path"].to_pylist()}
    if lost := [file for file in live if not file.is_file()]:
        message = (
            f"{folder}: the version of today names {lost[0]}, which is not there, so what may be "
            "deleted cannot be told. Nothing of it was deleted; restore the file from a backup."
        )
        raise LakehouseError(message)
    gone = [file for file in folder.rglob("*") if file.is_file() and _is_past(file, folder, live)]
    gone += [
        file
        for file in (folder / LOG).iterdir()
        if (found := VERSION.match(file.name)) and int(found[1]) < table.version()
    ]
    for file in gone:
        file.unlink()
    return len(gone)


def _is_past(file: Path, folder: Path, live: set[Path]) -> bool:
    """Whether a file is data of the past; a deletion vector has no values, and may be of today."""
    if LOG in file.relative_to(folder).parts or file.suffix == ".bin":
        return False
    return file not in live
