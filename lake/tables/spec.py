"""Table contracts: what a Delta table of the lake looks like. Also declares the tables of bronze.

`TableSpec` is the contract of one table; each layer declares its own. Tables are plain Delta
(no deletion vectors, no column mapping), so that every Delta reader can open them.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

from lake.quoting import identifier
from pulsar_spark.errors import LakehouseError
from pulsar_spark.schema import ADDED, ENVELOPE, Column

if TYPE_CHECKING:  # `lakehouse status` runs without Spark
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

APPEND_ONLY = "delta.appendOnly"  # table property: rows are never changed or deleted
# Table property: a change marks the old row outside its file. Not every reader supports such marks.
DELETION_VECTORS = "delta.enableDeletionVectors"
# Others read the changes of the table, rather than the whole table.
CHANGE_FEED = {"delta.enableChangeDataFeed": "true"}
# One commit a second adds 86,400 files a day to the log. A checkpoint of the log costs as much as a
# batch, and Delta's default is a checkpoint every ten commits.
BOUNDED_LOG = {
    "delta.checkpointInterval": "100",
    "delta.logRetentionDuration": "interval 7 days",
}

# Types that Delta and SQL name differently.
SQL_NAMES = {"long": "bigint", "integer": "int", "short": "smallint", "byte": "tinyint"}


@dataclass(frozen=True)
class TableSpec:
    """The Delta table `<layer>.<name>`: columns in order and table properties.

    fields: names of the columns, and of fields within structs, that may be added later because a
        topic file declares them.
    whole: paths of the structs that are values of declared fields. Their members cannot be added.
    clustered_by: columns by whose values rows are grouped in files, so that few files must be read
        for few values. Empty if rows arrive in such an order anyway.
    """

    layer: str
    name: str
    comment: str
    columns: tuple[Column, ...]
    properties: dict[str, str] = field(default_factory=dict)
    fields: frozenset[str] = frozenset()
    whole: frozenset[str] = frozenset()
    clustered_by: tuple[str, ...] = ()

    @property
    def full_name(self) -> str:
        """`<layer>.<name>`, the table's name in SQL."""
        return f"{self.layer}.{self.name}"

    def missing(self, known: StructType) -> list[tuple[str, str, str | None]]:
        """The declared fields that a table lacks.

        Args:
            known: the schema of the table.

        Returns:
            The path, type and preceding field of each, in order.

        Raises:
            LakehouseError: the table cannot be changed to what is declared.
        """
        return list(self._missing(self.struct(), known))

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
            elif (
                isinstance(known, StructType)
                and isinstance(field_.dataType, StructType)
                and place not in self.whole
            ):
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
            otherwise = (
                f"rebuild the table from bronze with `lakehouse replay --table {self.full_name}`"
            )
        message = f"Column '{place}' of the table {self.full_name} {what}, or {otherwise}."
        raise LakehouseError(message)

    def struct(self) -> StructType:
        """The columns as Spark's type."""
        from pyspark.sql.types import StructType

        ddl = ", ".join(f"{identifier(column.name)} {column.type}" for column in self.columns)
        return cast(StructType, StructType.fromDDL(ddl))  # an empty DataFrame would cost a second

    def schema(self) -> str:
        """The columns as a schema in JSON. Delta uses Spark's format."""
        schema = json.loads(self.struct().json())
        for column, field_json in zip(self.columns, schema["fields"], strict=True):
            field_json["nullable"] = column.nullable
            field_json["metadata"] = {"comment": column.comment}
        return json.dumps(schema)


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


def type_text(kind: Any) -> str:
    """A type of a Delta schema in JSON, as Spark's SQL writes it."""
    if isinstance(kind, str):
        return SQL_NAMES.get(kind, kind)
    if kind["type"] == "struct":
        members = (f"{each['name']}:{type_text(each['type'])}" for each in kind["fields"])
        return f"struct<{','.join(members)}>"
    if kind["type"] == "array":
        return f"array<{type_text(kind['elementType'])}>"
    return f"map<{type_text(kind['keyType'])},{type_text(kind['valueType'])}>"


def as_messages(rows: DataFrame) -> DataFrame:
    """Rows of a bronze table, with NULL in the columns that older versions did not create."""
    from pyspark.sql import functions as F

    missing = [column for column in ENVELOPE if column.name in ADDED - {*rows.columns}]
    return rows.withColumns({each.name: F.lit(None).cast(each.type) for each in missing})


def match(keys: Sequence[str], equals: str = "=") -> str:
    """The join condition of a MERGE. For keys that may be NULL, pass `<=>` as `equals`."""
    return " AND ".join(f"t.`{key}` {equals} s.`{key}`" for key in keys)
