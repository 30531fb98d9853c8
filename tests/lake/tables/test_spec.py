"""Tests the contract of a table, and which changes of it are accepted."""

import json
from dataclasses import replace

import pytest
from pyspark.sql import SparkSession

from lake.tables.spec import TableSpec, as_messages, bronze_table, match
from pulsar_spark.errors import LakehouseError
from pulsar_spark.schema import ADDED, ENVELOPE, Column

ID = Column("id", "bigint", "the key", nullable=False)
NAME = Column("name", "string", "a name")
USER = Column("user", "struct<id: bigint, town: string>", "who")
TABLE = TableSpec("silver", "some", "A table", (ID, USER), fields=frozenset({"name", "town"}))


def test_a_schema_has_types_comments_and_what_may_be_null(spark: SparkSession) -> None:
    fields = json.loads(TABLE.schema())["fields"]
    assert [(x["name"], x["nullable"], x["metadata"]["comment"]) for x in fields] == [
        ("id", False, "the key"),
        ("user", True, "who"),
    ]
    assert fields[0]["type"] == "long"
    assert [x["name"] for x in fields[1]["type"]["fields"]] == ["id", "town"]


def test_declared_fields_may_be_added_each_after_the_one_before(spark: SparkSession) -> None:
    old = replace(TABLE, columns=(ID, replace(USER, type="struct<id: bigint>"))).struct()
    new = replace(TABLE, columns=(ID, NAME, USER))
    assert new.missing(old) == [("name", "string", "id"), ("user.town", "string", "id")]
    first = replace(TABLE, columns=(NAME, ID, USER))
    assert first.missing(TABLE.struct()) == [("name", "string", None)]
    assert TABLE.missing(TABLE.struct()) == []


@pytest.mark.parametrize(
    ("columns", "says"),
    [
        ((ID,), "'user' of the table silver.some is no longer declared"),
        ((ID, USER, Column("age", "int", "")), "'age' of the table silver.some does not exist"),
        ((Column("id", "string", ""), USER), "'id' .* is bigint, but is now declared as string"),
        ((ID, Column("user", "struct<id: int, town: string>", "")), "'user.id' .*declared as int"),
    ],
)
def test_other_changes_are_refused_by_the_name_of_the_column(
    spark: SparkSession, columns: tuple[Column, ...], says: str
) -> None:
    with pytest.raises(LakehouseError, match=f"{says}.*replay --table silver"):
        replace(TABLE, columns=columns).missing(TABLE.struct())
    with pytest.raises(LakehouseError, match="start over with `lakehouse reset`"):
        replace(TABLE, layer="bronze", columns=columns).missing(TABLE.struct())


def test_members_of_a_declared_struct_cannot_be_added(spark: SparkSession) -> None:
    """Older rows would need a value for them. A looked-up row gets new fields, but not in them."""
    device = Column("device", "struct<id: bigint>", "a field")
    more = replace(device, type="struct<id: bigint, name: string>")
    table = replace(TABLE, columns=(ID, device), whole=frozenset({"device", "user.device"}))
    with pytest.raises(
        LakehouseError, match="'device' .* is struct<id:bigint>, but is now declared"
    ):
        replace(table, columns=(ID, more)).missing(table.struct())
    user = replace(USER, type="struct<device: struct<id: bigint>>")
    before = replace(table, columns=(ID, user)).struct()
    other = replace(USER, type="struct<device: struct<id: bigint, name: string>>")
    with pytest.raises(LakehouseError, match=r"'user\.device' .* is now declared"):
        replace(table, columns=(ID, other)).missing(before)
    named = replace(USER, type="struct<device: struct<id: bigint>, name: string>")
    assert replace(table, columns=(ID, named)).missing(before) == [
        ("user.name", "string", "device")
    ]


def test_columns_that_an_older_bronze_table_lacks_are_null(spark: SparkSession) -> None:
    old = [column for column in ENVELOPE if column.name not in ADDED]
    rows = spark.createDataFrame([], replace(bronze_table("o"), columns=tuple(old)).struct())
    assert {*as_messages(rows).columns} == {column.name for column in ENVELOPE}
    assert (
        as_messages(rows).select(*(c.name for c in ENVELOPE)).schema == bronze_table("o").struct()
    )


def test_a_merge_compares_the_keys_by_name() -> None:
    assert match(["id", "line"]) == "t.`id` = s.`id` AND t.`line` = s.`line`"
    assert match(["id"], "<=>") == "t.`id` <=> s.`id`"
