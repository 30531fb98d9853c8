"""Refuses changes of the topic file by which existing rows would be other rows.

Columns show when a field is added or dropped. They do not show that the key has another field, or
that a lookup goes by another one. Each table of silver therefore has a property with the
declarations that its rows follow from (`contract/tables.py`).
"""

import json
from collections.abc import Iterator

from pyspark.sql import SparkSession

from lake.tables.lake import Lake
from lake.tables.table import Table
from pulsar_spark.errors import LakehouseError
from silver.contract.tables import DECLARED, FUNCTION, own_tables


def refuse_changed_declarations(lake: Lake) -> None:
    """Compare the topic file with the tables. Called before silver starts and changes a table.

    Raises:
        LakehouseError: a declaration has changed, and existing rows would have to change.
    """
    for table in map(lake.table, own_tables(lake)):
        for what in changed_declarations(table) if table.exists() else ():
            raise LakehouseError(what)


def record_declarations(spark: SparkSession, table: Table) -> None:
    """Write to a table's properties the declarations that its rows follow from.

    Called when silver starts, for tables of an earlier release, and when a table is rebuilt.
    """
    wanted = table.spec.properties.get(DECLARED)
    if wanted is not None and table.arrow.configuration(DECLARED) != wanted:
        table.set_property(spark, DECLARED, wanted)


def changed_declarations(table: Table) -> Iterator[str]:
    """Say which declarations of an existing table have changed, and what to do.

    Called by `lakehouse plan`, too.
    """
    before = table.arrow.configuration(DECLARED)
    now = table.spec.properties.get(DECLARED)
    if before is None or now is None:
        return
    known, wanted = json.loads(before), json.loads(now)
    for name in sorted({*known, *wanted}):
        if name.startswith(FUNCTION):
            if name in known and name in wanted and known[name] != wanted[name]:
                yield (
                    f"The function of the field '{name.removeprefix(FUNCTION)}' has changed (its "
                    f"file, 'nulls' or 'of'), but the rows of {table.full_name} were computed by "
                    "the former one. Undo the change, or rebuild the table from bronze with "
                    f"`lakehouse replay --table {table.full_name}`, or with what else has changed "
                    "with `lakehouse up --rebuild`."
                )
        elif known.get(name) != wanted.get(name):
            yield (
                f"'{name}' of the topic of {table.full_name} was {_shown(known.get(name))}, and is "
                f"now {_shown(wanted.get(name))}, but its rows were made by the former "
                "declaration. Undo the change in the topic file, or rebuild the table from bronze "
                f"with `lakehouse replay --table {table.full_name}`."
            )


def _shown(value: object) -> str:
    return "not declared" if value is None else json.dumps(value)
