"""Table contracts: what a Delta table of the lake looks like. Also declares the tables of bronze.

`TableSpec` is the contract of one table; each layer declares its own. Tables are plain Delta
(no deletion vectors, no column mapping), so that every Delta reader can open them.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, cast

import deltalake

from lake.settings.settings import LakeSettings
from lake.tables.checksums import write_checksum
from lake.tables.sql import delta_at, identifier, literal
from lake.tables.storage import is_table, storage_options, tables_below
from pulsar_spark.errors import LakehouseError
from pulsar_spark.schema import ADDED, ENVELOPE, Column

if TYPE_CHECKING:  # `lakehouse status` runs without Spark
    from delta.tables import DeltaTable
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

APPEND_ONLY = "delta.appendOnly"  # table property: rows are never changed or deleted
# One commit a second adds 86,400 files a day to the log. A checkpoint of the log costs as much as a
# batch, and Delta's default is a checkpoint every ten commits.
BOUNDED_LOG = {
    "delta.checkpointInterval": "100",
    "delta.logRetentionDuration": "interval 7 days",
}


@dataclass(frozen=True)
class TableSpec:
    """The Delta table `<layer>.<name>`: columns in order and table properties.

    fields: names of the columns, and of fields within structs, that may be added later because a
        topic file declares them.
    clustered_by: columns by whose values rows are grouped in files, so that few files must be read
        for few values. Empty if rows arrive in such an order anyway.
    """

    layer: str
    name: str
    comment: str
    columns: tuple[Column, ...]
    properties: dict[str, str] = field(default_factory=dict)
    fields: frozenset[str] = frozenset()
    clustered_by: tuple[str, ...] = ()

    @property
    def full_name(self) -> str:
        """`<layer>.<name>`, the table's name in SQL."""
        return f"{self.layer}.{self.name}"

    def path(self, settings: LakeSettings) -> str:
        """The folder or address of the table."""
        return settings.table_path(self.layer, self.name)

    def exists(self, settings: LakeSettings) -> bool:
        """Whether there is a Delta table at the path."""
        return is_table(settings, self.path(settings))

    def create(
        self, settings: LakeSettings, properties: dict[str, str] | None = None
    ) -> deltalake.DeltaTable:
        """Create the table, with additional properties, if it does not exist, and return it.

        delta-rs writes the first commit, because this takes seconds with a cold Spark.
        """
        table = deltalake.DeltaTable.create(
            self.path(settings),
            schema=deltalake.Schema.from_json(self._schema()),
            mode="ignore",
            description=self.comment,
            configuration={**BOUNDED_LOG, **self.properties, **(properties or {})},
            raise_if_key_not_exists=False,  # Delta does not know our property for the writer
            storage_options=storage_options(settings),
        )
        write_checksum(table, if_absent=True)
        return table

    def evolve(
        self, spark: SparkSession, settings: LakeSettings, delta: deltalake.DeltaTable
    ) -> list[str]:
        """Add the declared fields that the existing table lacks. They are NULL in existing rows.

        Args:
            spark: the session.
            settings: the lake.
            delta: the existing table.

        Returns:
            The paths of the added fields.

        Raises:
            LakehouseError: the table cannot be changed to what is declared.
        """
        from pyspark.sql.types import StructType

        known = StructType.fromJson(json.loads(delta.schema().to_json()))
        added = list(self._missing(self._columns(), known))
        for place, kind, after in added:
            quoted = ".".join(map(identifier, place.split(".")))
            where = f"AFTER {identifier(after)}" if after else "FIRST"
            table = delta_at(self.path(settings))
            spark.sql(f"ALTER TABLE {table} ADD COLUMNS ({quoted} {kind} {where})")
        return [place for place, _, _ in added]

    def _missing(
        self, wanted: StructType, there: StructType, within: str = ""
    ) -> Iterator[tuple[str, str, str | None]]:
        """The path, type and preceding field of each field that a table lacks, in order."""
        from pyspark.sql.types import StructType

        for name in there.names:
            if name not in wanted.names:
                self._refuse(
                    f"{within}{name}",
                    "is no longer declared. Declare it again with required = false; to rename it, "
                    "declare both names",
                )
        before = None
        for field_ in wanted.fields:
            name, place = field_.name, f"{within}{field_.name}"
            known = there[name].dataType if name in there.names else None
            now = field_.dataType.simpleString()
            if known is None and name in self.fields:
                yield place, now, before
            elif known is None:
                self._refuse(
                    place,
                    "does not exist, and older rows would need a value for it. Undo the change "
                    "in the topic file",
                )
            elif isinstance(known, StructType) and isinstance(field_.dataType, StructType):
                yield from self._missing(field_.dataType, known, f"{place}.")
            elif known != field_.dataType:
                self._refuse(
                    place,
                    f"is {known.simpleString()}, but is now declared as {now}. Its values cannot "
                    "be converted: give the field another name",
                )
            before = name

    def _refuse(self, place: str, what: str) -> None:
        otherwise = "start over with `lakehouse reset`"
        if self.layer == "silver":
            otherwise = "rebuild silver from bronze with `lakehouse replay --table silver`"
        message = f"Column '{place}' of the table {self.full_name} {what}, or {otherwise}."
        raise LakehouseError(message)

    def _columns(self) -> StructType:
        from pyspark.sql.types import StructType

        ddl = ", ".join(f"{identifier(column.name)} {column.type}" for column in self.columns)
        return cast(StructType, StructType.fromDDL(ddl))  # an empty DataFrame would cost a second

    def _schema(self) -> str:
        """The columns as a schema in JSON. Delta uses Spark's format."""
        schema = json.loads(self._columns().json())
        for column, field_json in zip(self.columns, schema["fields"], strict=True):
            field_json["nullable"] = column.nullable
            field_json["metadata"] = {"comment": column.comment}
        return json.dumps(schema)

    def set_property(
        self, spark: SparkSession, settings: LakeSettings, name: str, value: str | None
    ) -> None:
        """Set a property of the existing table. The value None removes the property."""
        alter, named = f"ALTER TABLE {delta_at(self.path(settings))}", literal(name)
        if value is None:
            spark.sql(f"{alter} UNSET TBLPROPERTIES IF EXISTS ({named})")
        else:
            spark.sql(f"{alter} SET TBLPROPERTIES ({named} = {literal(value)})")

    def read(
        self, spark: SparkSession, settings: LakeSettings, version: int | None = None
    ) -> DataFrame:
        """The rows of the existing table, in its newest version or the given one."""
        reader = spark.read.format("delta")
        if version is not None:
            reader = reader.option("versionAsOf", version)
        return reader.load(self.path(settings))

    def open(self, spark: SparkSession, settings: LakeSettings) -> DeltaTable:
        """The existing table, opened with Spark."""
        from delta.tables import DeltaTable

        return DeltaTable.forPath(spark, self.path(settings))


def delta_tables(settings: LakeSettings, layer: str) -> dict[str, str]:
    """The folder or address of each Delta table of a layer, by the table's name."""
    names = tables_below(settings, f"{settings.tables}/{layer}")
    return {name: settings.table_path(layer, name) for name in names}


def bronze_table(topic: str) -> TableSpec:
    """The contract of a topic's bronze table. Grain: one message. Append-only."""
    return TableSpec(
        "bronze",
        topic,
        f"Every message of the topic {topic}, exactly once, as it came",
        ENVELOPE,
        # Statistics of every column would take a third of the writing time, and no query uses them.
        {APPEND_ONLY: "true", "delta.dataSkippingStatsColumns": "publish_time"},
        ADDED,
    )


def as_messages(rows: DataFrame) -> DataFrame:
    """Rows of a bronze table, with NULL in the columns that older versions did not create."""
    from pyspark.sql import functions as F

    missing = [column for column in ENVELOPE if column.name in ADDED - {*rows.columns}]
    return rows.withColumns({each.name: F.lit(None).cast(each.type) for each in missing})


def match(keys: Sequence[str], equals: str = "=") -> str:
    """The join condition of a MERGE. For keys that may be NULL, pass `<=>` as `equals`."""
    return " AND ".join(f"t.`{key}` {equals} s.`{key}`" for key in keys)
