"""Computes the fields that a topic file declares with `sql` or `function`, from decoded fields.

An expression that fails for a message must not fail the batch, so the message is rejected with a
reason. Spark evaluates each expression within `TryEval`, which is NULL if anything in it throws.
SQL has no function that does this for any expression, so the class is used directly. Functions in
Python are called for all rows of an Arrow array at once (`lake/functions/calls.py`).
"""

from collections.abc import Iterable
from typing import Any, cast

import pyarrow as pa
from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.functions import arrow_udf
from pyspark.sql.pandas.types import to_arrow_type
from pyspark.sql.types import StructType

from lake.functions.calls import FunctionCalls
from lake.settings.pseudonyms import PseudonymSecret
from lake.topics.field_type import FieldType
from lake.topics.topic import (
    ELEMENTS,
    FieldSpec,
    Function,
    Topic,
    hash_column,
    snake_case,
    sql_type,
)
from pulsar_spark.errors import SettingsError
from silver.contract.columns import REASON
from silver.contract.tables import field_columns, own_columns
from silver.records.field_types import is_in_range
from silver.records.masking import hashes
from silver.records.nested_types import any_part


class Computed:
    """Adds the computed fields of one topic to decoded rows. Its columns are built only once."""

    def __init__(self, topic: Topic, secret: PseudonymSecret | None) -> None:
        """`secret` is the key of the hashes, if a computed field is hashed."""
        self._own = [column.name for column in own_columns(topic)]
        self._tries: dict[str, Column] = {}
        self._values: dict[str, Column] = {}
        is_written, reasons = F.col(REASON).isNull() & ~F.col("is_deleted"), F.col(REASON)
        for name, spec in topic.computed_fields.items():
            column, attempt = snake_case(name), f"_try_{snake_case(name)}"
            tried = F.when(is_written, _tried(_result(spec))) if spec.sql else None
            self._tries[attempt] = _called(topic, spec, is_written) if tried is None else tried
            found = F.col(f"{attempt}.value")
            is_accepted = found.isNull() | ~_is_out_of_range(found, spec)
            value = self._values[column] = F.when(is_accepted, found)
            failed = is_written & (F.col(attempt).isNull() | ~is_accepted)
            shown = f"field '{name}'" if name != ELEMENTS else "the array to explode"
            failure = F.lit(f"{shown} cannot be computed as {spec.type}")
            if spec.function:
                why = F.col(f"{attempt}.failure")
                failed, text = failed | why.isNotNull(), f"{shown} cannot be computed: "
                failure = F.when(why.isNull(), failure).otherwise(F.concat(F.lit(text), why))
            reasons = F.coalesce(reasons, F.when(failed, failure))
            if spec.required:
                missing = F.when(is_written & found.isNull(), F.lit(f"field '{name}' is missing"))
                reasons = F.coalesce(reasons, missing)
            if spec.personal == "hash":
                self._values[hash_column(name)] = hashes(value, secret)
        if self._values:
            self._values[REASON] = reasons

    def added_to(self, rows: DataFrame) -> DataFrame:
        """Add the computed fields to rows, in the place of their declaration.

        They are NULL in the rows of deletes, of which only the key counts. A message for which a
        field cannot be computed gets a reason.

        Args:
            rows: rows with the columns of the other fields, `is_deleted` and `REASON`.
        """
        if not self._values:
            return rows
        rest = [name for name in rows.columns if name not in self._own]
        return rows.withColumns(self._tries).withColumns(self._values).select(*self._own, *rest)


def check_expressions(spark: SparkSession, topics: Iterable[Topic]) -> None:
    """Check that Spark accepts the expressions of all computed fields, and load all functions.

    Called before messages are decoded: when silver starts, and by commands that decode.

    Raises:
        SettingsError: Spark refuses one, such as for the type of an argument, or the file of a
            function cannot be loaded.
    """
    for topic in (each.whole for each in topics):
        if not topic.computed_fields:
            continue
        computed = {snake_case(name) for name in topic.computed_fields}
        given = [column for column in field_columns(topic) if column.name not in computed]
        ddl = ", ".join(f"`{column.name}` {column.type}" for column in given)
        rows = spark.createDataFrame([], ddl)
        for name, spec in topic.computed_fields.items():
            if spec.function:
                _calls(topic, spec).load()
                continue
            try:
                rows.select(_result(spec))
            except AnalysisException as error:
                what = str(error).splitlines()[0].split(" SQLSTATE")[0].rstrip(".; ")
                message = (
                    f"Topic file: Spark cannot compute the field '{name}' of the topic "
                    f"'{topic.name}': {what}. Correct its 'sql'."
                )
                raise SettingsError(message) from error


def _is_out_of_range(value: Column, spec: FieldSpec) -> Column:
    def is_out(part: Column, kind: FieldType) -> Column | None:
        return part.isNotNull() & ~is_in_range(part, kind)

    return cast(Column, any_part(value, spec.kind.as_column(), is_out))


def _result(spec: FieldSpec) -> Column:
    return F.expr(str(spec.sql)).cast(sql_type(spec))


def _called(topic: Topic, spec: FieldSpec, is_wanted: Column) -> Column:
    """A struct with the fields `value` and `failure`, made by the function of a field."""
    calls = _calls(topic, spec)

    def call(wanted: pa.Array, *arguments: pa.Array) -> pa.Array:
        return calls.results(wanted, *arguments)

    columns = [F.col(snake_case(name)) for name in spec.of]
    kind = f"struct<value:{sql_type(spec)},failure:string>"
    return cast(Column, arrow_udf(call, kind)(is_wanted, *columns))  # type: ignore[call-overload]


def _calls(topic: Topic, spec: FieldSpec) -> FunctionCalls:
    function = cast(Function, spec.function)
    return FunctionCalls(
        function.called,
        function.file,
        function.source,
        [_arrow_type(topic.fields[name]) for name in spec.of],
        _arrow_type(spec),
        skips_nulls=function.nulls == "skip",
    )


def _arrow_type(spec: FieldSpec) -> pa.DataType:
    [field] = cast(StructType, StructType.fromDDL(f"a {sql_type(spec)}")).fields
    return to_arrow_type(field.dataType, timezone="UTC")


def _tried(value: Column) -> Column:
    """A struct with the field `value`, NULL if the evaluation throws.

    The value is the only element of an array, computed by a function of the elements, because
    compiled code computes what expressions have in common before any of them, and so outside of
    `TryEval`. It does not look for such parts in functions.

    `when` makes the value one that may be NULL. Spark believes that some functions never return
    NULL, such as `element_at`, and would then read whatever the struct holds instead. It cannot
    simplify the condition, because it does not know the element.
    """
    alone = F.transform(
        F.array(F.lit(1)), lambda one: F.struct(F.when(one == 1, value).alias("value"))
    )
    jvm: Any = SparkSession.active()._jvm  # noqa: SLF001
    utils = jvm.org.apache.spark.sql.classic.ExpressionUtils
    expression = utils.expression(F.get(alone, F.lit(0))._jc)  # noqa: SLF001
    return Column(utils.column(jvm.org.apache.spark.sql.catalyst.expressions.TryEval(expression)))
