"""The handle of a table: one way to open it for each kind of reader and writer."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import deltalake

from lake.quoting import delta_at, identifier, literal
from lake.settings.settings import LakeSettings
from lake.tables.arrow import ArrowTable
from lake.tables.checksums import write_checksum
from lake.tables.log import TableFiles
from lake.tables.spec import BOUNDED_LOG, TableSpec
from lake.tables.storage import (
    commit_file,
    delete,
    is_table,
    newest_version,
    open_table,
    read_text,
    storage_options,
    written_at,
)
from lake.tables.swap import Swap

if TYPE_CHECKING:  # `lakehouse status` runs without Spark
    from delta.tables import DeltaTable
    from pyspark.sql import DataFrame, SparkSession


Action = dict[str, Any]  # of Delta's log


@dataclass(frozen=True)
class Changes:
    """The files by which a version changes rows; none if it only moves rows.

    add, remove: data files. cdc: files of the change feed.
    """

    add: list[Action]
    remove: list[Action]
    cdc: list[Action]

    @property
    def of_rows(self) -> bool:
        """Whether rows change."""
        return bool(self.add or self.remove or self.cdc)

    @property
    def is_exact(self) -> bool:
        """Whether delta-rs reads the change feed of the version exactly.

        It ignores deletion vectors in the feed of a version without change files of its own, such
        as a DELETE or a RESTORE, and gives deleted rows as inserted.
        """
        files = [*self.add, *self.remove]
        return bool(self.cdc) or not any(file.get("deletionVector") for file in files)

    @property
    def has_rewrites(self) -> bool:
        """Whether files are replaced without a record of which of their rows change."""
        return bool(self.remove and not self.cdc)

    @property
    def appended(self) -> list[Action]:
        """The files of new rows; none if rows are removed as well, because streams skip that."""
        return [] if self.remove else self.add


class Table:
    """A table of a lake, which need not exist yet. `Lake.table` makes it.

    spec: the contract. It has no columns for a table that dbt or another program creates.
    path: the folder or address of the table.
    """

    def __init__(self, settings: LakeSettings, spec: TableSpec) -> None:
        self.spec = spec
        self.path = settings.table_path(spec.layer, spec.name)
        self._settings = settings
        self._arrow: ArrowTable | None = None
        self._seen: tuple[int, float | None] = (-1, None)  # a version, and when it was written

    @property
    def full_name(self) -> str:
        """`<layer>.<name>`, the table's name in SQL."""
        return self.spec.full_name

    @property
    def is_known(self) -> bool:
        """Whether the table has been opened before, which takes less time to see than `exists`."""
        return self._arrow is not None

    def exists(self) -> bool:
        """Whether there is a Delta table at the path."""
        return is_table(self._settings, self.path)

    def create(self, properties: dict[str, str] | None = None) -> deltalake.DeltaTable:
        """Create the table, with additional properties, if it does not exist.

        delta-rs writes the first commit, because this takes seconds with a cold Spark.

        Returns:
            The log of the new or existing table.
        """
        table = deltalake.DeltaTable.create(
            self.path,
            schema=deltalake.Schema.from_json(self.spec.schema()),
            mode="ignore",
            description=self.spec.comment,
            configuration={**BOUNDED_LOG, **self.spec.properties, **(properties or {})},
            raise_if_key_not_exists=False,  # Delta does not know our property for the writer
            storage_options=storage_options(self._settings),
        )
        write_checksum(table, if_absent=True)
        return table

    def evolve(self, spark: SparkSession, log: deltalake.DeltaTable) -> list[str]:
        """Add the declared fields that the existing table lacks. They are NULL in existing rows.

        Args:
            spark: the session.
            log: the log of the table, at its newest version.

        Returns:
            The paths of the added fields.

        Raises:
            LakehouseError: the table cannot be changed to what is declared.
        """
        from pyspark.sql.types import StructType

        known = StructType.fromJson(json.loads(log.schema().to_json()))
        added = self.spec.missing(known)
        for place, kind, after in added:
            quoted = ".".join(map(identifier, place.split(".")))
            where = f"AFTER {identifier(after)}" if after else "FIRST"
            table = delta_at(self.path)
            spark.sql(f"ALTER TABLE {table} ADD COLUMNS ({quoted} {kind} {where})")
        return [place for place, _, _ in added]

    def set_property(self, spark: SparkSession, name: str, value: str | None) -> None:
        """Set a property of the existing table. The value None removes the property."""
        alter, named = f"ALTER TABLE {delta_at(self.path)}", literal(name)
        if value is None:
            spark.sql(f"{alter} UNSET TBLPROPERTIES IF EXISTS ({named})")
        else:
            spark.sql(f"{alter} SET TBLPROPERTIES ({named} = {literal(value)})")

    def log(self, version: int | None = None) -> deltalake.DeltaTable:
        """The log of the existing table, opened at its newest version or the given one."""
        return open_table(self._settings, self.path, version)

    def files(self) -> TableFiles:
        """Statistics of the files in the newest version."""
        return TableFiles(self.log())

    def newest_version(self) -> int:
        """The newest version; -1 if the table does not exist."""
        return newest_version(self._settings, self.path)

    @property
    def arrow(self) -> ArrowTable:
        """The rows as Arrow tables, without Spark, at the newest version.

        The table is opened once, because opening reads the log from its last checkpoint on. Each
        use of the property moves the handle to the newest version. If the commit that the handle
        saw last was replaced, the table was deleted and recreated, perhaps by another process, and
        is opened again.
        """
        version, written = self._seen
        if self._arrow is None or written is None or self.written_at(version) != written:
            self._arrow = ArrowTable(self.log())
        else:
            self._arrow.refresh()
        if self._arrow.version != version or written is None:
            self._seen = self._arrow.version, self.written_at(self._arrow.version)
        return self._arrow

    def written_at(self, version: int) -> float | None:
        """When a version was written, in seconds since 1970; None if its log entry is gone."""
        return written_at(self._settings, commit_file(self.path, version))

    def changes(self, version: int) -> Changes | None:
        """What a version changes. None if its entry in the log is gone."""
        entry = read_text(self._settings, commit_file(self.path, version))
        if entry is None:
            return None
        found: dict[str, list[Action]] = {"add": [], "remove": [], "cdc": []}
        for line in entry.splitlines():
            for kind, action in json.loads(line).items() if line else ():
                if kind == "cdc" or (kind in found and action.get("dataChange")):
                    found[kind].append(action)
        return Changes(**found)

    def arrow_at(self, version: int) -> ArrowTable:
        """The rows of a version as Arrow tables, without Spark."""
        return ArrowTable(self.log(version))

    def spark(self, spark: SparkSession) -> DeltaTable:
        """The existing table, opened by Spark, to be changed."""
        from delta.tables import DeltaTable

        return DeltaTable.forPath(spark, self.path)

    def rows(self, spark: SparkSession, version: int | None = None) -> DataFrame:
        """The rows as a DataFrame, in the newest version or the given one.

        The newest rows of a small table are read at once, without Spark. Delta's reader takes
        a second for each version that it has not seen, whatever the size of the table.
        """
        if version is None and (few := self.few_rows(spark)) is not None:
            return few
        reader = spark.read.format("delta")
        if version is not None:
            reader = reader.option("versionAsOf", version)
        return reader.load(self.path)

    def few_rows(self, spark: SparkSession) -> DataFrame | None:
        """All rows, read without Spark; None if they are not few."""
        direct = self.arrow
        return spark.createDataFrame(direct.everything()) if direct.is_small() else None

    def swap_from(self, source: Table, version: int | None = None) -> Swap:
        """Prepare to take over the content of another table, in its newest version or a given one.

        The source must not have deletion vectors, because these would not be taken over.
        """
        log = source.log(version)
        return Swap(self._settings, (source.path, log), (self.path, self.log()))

    def delete(self) -> None:
        """Delete the table with its log and all versions."""
        delete(self._settings, self.path)


def files_of_each(tables: Iterable[Table]) -> dict[str, TableFiles]:
    """Statistics of the files of the tables that exist, by full name."""
    return {table.full_name: table.files() for table in tables if table.exists()}
