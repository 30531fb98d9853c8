"""Finds out when rows became readable, from the commit files of a table, alike for both formats.

A row is readable once the file of its commit exists, so the time is that of this file. Only data
files that commits have added are read, each once.
"""

import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import unquote

import duckdb
import numpy as np
import pyarrow as pa
from deltalake import DeltaTable
from pyarrow import orc
from pyarrow.dataset import dataset

SEEN = """SELECT invoice_id, epoch_us(publish_time::TIMESTAMPTZ) / 1e6 AS published,
  "user".id IS NOT NULL AS has_user FROM rows"""
COLUMNS = ["invoice_id", "publish_time", "user"]

# In Paimon, a deletion is also a row, and only the last row of a key counts.
THERE = "_VALUE_KIND IN (0, 2)"  # inserted or changed
LAST = f"""SELECT * FROM (
  SELECT *, row_number() OVER (
    PARTITION BY invoice_id, line_item_id ORDER BY _SEQUENCE_NUMBER DESC) AS age
  FROM rows
) WHERE age = 1 AND {THERE}"""


@dataclass(frozen=True)
class Commit:
    """The data files that a commit added, and its time in epoch seconds."""

    at: float
    files: list[Path]


class Log(Protocol):
    """The commits of a table."""

    def new(self) -> Iterator[Commit]:
        """The commits since the last call, in order."""

    def rows(self, files: list[Path]) -> pa.Table:
        """The rows in data files, with `COLUMNS`."""

    def live(self) -> pa.Table:
        """The current rows of the table, with all columns."""


class DeltaLog:
    """The commits of a Delta table."""

    def __init__(self, table: Path) -> None:
        self.table = table
        self.version = -1

    def new(self) -> Iterator[Commit]:
        while (file := self.table / "_delta_log" / f"{self.version + 1:020d}.json").exists():
            self.version += 1
            actions = [json.loads(line) for line in file.read_text().splitlines()]
            added = [each["add"] for each in actions if "add" in each]
            files = [self.table / unquote(each["path"]) for each in added if each["dataChange"]]
            yield Commit(file.stat().st_mtime, files)

    def rows(self, files: list[Path]) -> pa.Table:
        return dataset(files, format="parquet").to_table(COLUMNS)

    def live(self) -> pa.Table:
        return dataset(DeltaTable(self.table).file_uris(), format="parquet").to_table()


class PaimonLog:
    """The commits of a Paimon table without partitions, whose data files and manifests are ORC."""

    def __init__(self, table: Path) -> None:
        self.table = table
        self.version = 0

    def new(self) -> Iterator[Commit]:
        while (file := self.table / "snapshot" / f"snapshot-{self.version + 1}").exists():
            self.version += 1
            snapshot = json.loads(file.read_text())
            if snapshot["commitKind"] == "APPEND":
                files = [
                    path for kind, path in self._entries(snapshot["deltaManifestList"]) if not kind
                ]
                yield Commit(file.stat().st_mtime, files)

    def rows(self, files: list[Path]) -> pa.Table:
        rows = dataset(files, format="orc").to_table([*COLUMNS, "_VALUE_KIND"])
        return query(f"SELECT * FROM rows WHERE {THERE}", rows)

    def live(self) -> pa.Table:
        latest = (self.table / "snapshot" / "LATEST").read_text()
        snapshot = json.loads((self.table / "snapshot" / f"snapshot-{latest}").read_text())
        found: dict[Path, bool] = {}
        for manifests in ("baseManifestList", "deltaManifestList"):
            for deleted, path in self._entries(snapshot[manifests]):
                found[path] = not deleted
        files = [path for path, there in found.items() if there]
        return query(LAST, dataset(files, format="orc").to_table())

    def _entries(self, manifests: str) -> Iterator[tuple[int, Path]]:
        """For each entry in a list of manifests: 1 if it deletes, else 0, and the data file."""
        folder = self.table / "manifest"
        for manifest in _rows(folder / manifests):
            for entry in _rows(folder / manifest["_FILE_NAME"]):
                bucket = self.table / f"bucket-{entry['_BUCKET']}"
                yield entry["_KIND"], bucket / entry["_FILE"]["_FILE_NAME"]


def query(sql: str, rows: pa.Table) -> pa.Table:
    """The result of SQL on a table, which the SQL calls `rows`."""
    result = duckdb.from_arrow(rows).query("rows", sql)
    assert result is not None
    return result.to_arrow_table()


def _rows(file: Path) -> list[dict[str, Any]]:
    return list(orc.read_table(file).to_pylist())


class Tracker:
    """Records when each order was published, became readable, and became readable with its user.

    Each array holds epoch seconds by the order's number, and NaN if it has not happened yet.
    """

    def __init__(self, orders: int) -> None:
        self.published = np.full(orders, np.nan)
        self.arrived = np.full(orders, np.nan)
        self.completed = np.full(orders, np.nan)

    def follow(self, log: Log) -> None:
        """Read the new commits of a table."""
        for commit in log.new():
            if commit.files:
                self._take(commit.at, query(SEEN, log.rows(commit.files)))

    def _take(self, at: float, rows: pa.Table) -> None:
        n = rows["invoice_id"].to_numpy()
        self.published[n] = rows["published"].to_numpy()
        self.arrived[n] = np.fmin(self.arrived[n], at)
        complete = n[rows["has_user"].to_numpy()]
        self.completed[complete] = np.fmin(self.completed[complete], at)

    def wait(self, log: Log, done: Callable[[], bool], seconds: float, what: str) -> None:
        """Follow a table until a condition holds.

        Args:
            log: the commits of the table.
            done: the condition.
            seconds: how long to wait.
            what: what the condition means, for the error.

        Raises:
            TimeoutError: the condition did not hold within these seconds.
        """
        deadline = time.monotonic() + seconds
        self.follow(log)
        while not done():
            if time.monotonic() > deadline:
                message = (
                    f"Not within {seconds:.0f} s: {what}. {np.isfinite(self.arrived).sum():,} "
                    f"orders can be read, {np.isfinite(self.completed).sum():,} with their user."
                )
                raise TimeoutError(message)
            time.sleep(0.25)
            self.follow(log)
