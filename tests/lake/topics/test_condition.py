"""Tests that conditions without Spark hold for the same rows as in Spark."""

import datetime as dt
import math
import random
from decimal import Decimal

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from lake.topics.condition import Condition

UTC = dt.timezone.utc
SCHEMA = pa.schema(
    {
        "flag": pa.bool_(),
        "small": pa.int32(),
        "big": pa.int64(),
        "money": pa.decimal128(20, 2),
        "Ratio": pa.float64(),
        "single": pa.float32(),
        "name": pa.string(),
        "day": pa.date32(),
        "seen": pa.timestamp("us", "UTC"),
        "plain": pa.timestamp("us"),
        "place": pa.struct({"city": pa.string(), "zip": pa.int32()}),
    }
)
NOON = dt.datetime.fromisoformat("2026-03-01T12:00:00")
VALUES = {
    "flag": [True, False],
    "small": [-1, 0, 1, 2],
    "big": [-(2**63), 0, 2, 2**53 + 1, 2**63 - 1],
    "money": [Decimal("-1.50"), Decimal("0.00"), Decimal("2.00"), Decimal("2.01")],
    "Ratio": [-math.inf, -0.0, 0.0, 2.0, 2.01, math.inf, math.nan],
    "single": [0.0, 0.1, 2.0, math.nan],
    "name": ["", "a", "Ab", "ab%", "a\nb", "ü", "\U0001f600x", "\uffee"],
    "day": [dt.date(2026, 3, 1), dt.date(2026, 3, 2), dt.date(1969, 12, 31)],
    "seen": [NOON.replace(tzinfo=UTC), dt.datetime(2026, 3, 2, tzinfo=UTC)],
    "plain": [NOON, NOON.replace(microsecond=1)],
    "place": [{"city": "a", "zip": 1}, {"city": None, "zip": 2}],
}
LITERALS = {
    "flag": ["true", "FALSE"],
    "small": ["0", "-1", "2.0", "1.5", "2e0"],
    "name": ["''", "'a'", "'ab%'", '"ü"', "'z'"],
    "day": ["'2026-03-01'", "DATE '2026-03-02'", "TIMESTAMP '2026-03-01 12:00:00'"],
    "seen": [
        "'2026-03-01T12:00:00Z'",
        "TIMESTAMP '2026-03-01 13:00:00.0+01:00'",
        "'2026-03-02'",
        "DATE '2026-03-02'",
    ],
}
ALIKE = {
    "flag": ["flag"],
    "small": ["small", "big", "money", "Ratio", "single", "place.zip", "length(name)"],
    "name": ["name", "place.city", "`NAME`"],
    "day": ["day"],
    "seen": ["seen", "plain"],
}


def condition(rng: random.Random, depth: int = 2) -> str:
    if depth and rng.random() < 0.6:
        parts = [condition(rng, depth - 1) for _ in range(2)]
        shape = rng.choice(["{} AND {}", "{} OR ({})", "NOT ({}) OR {}", "({}) IS NOT TRUE"])
        return shape.format(*parts)
    kind = rng.choice([*ALIKE])
    left = rng.choice(ALIKE[kind])
    right = rng.choice(ALIKE[kind] + 3 * LITERALS[kind])
    if rng.random() < 0.15:
        right, left = left, f"coalesce({left}, {rng.choice(LITERALS[kind])})"
    other = rng.choice(LITERALS[kind])
    shapes = [
        f"{left} = {right}",
        f"{left} <> {right}",
        f"{left} <=> {right}",
        f"{left} IS DISTINCT FROM {right}",
        f"{left} IS NULL",
        f"{left} NOT IN ({other}, {rng.choice(LITERALS[kind])})",
    ]
    if kind != "flag":
        shapes += [f"{left} {rng.choice(['<', '<=', '>', '>='])} {right}"] * 3
        shapes += [f"{left} BETWEEN {other} AND {right}"]
    else:
        shapes += [left, f"!{left}", f"{left} IS FALSE"]
    if kind == "name":
        shapes += [f"{left} LIKE 'a%'", f"{left} NOT LIKE '_b'", f"contains({left}, 'b')"]
        shapes += [f"startswith({left}, 'a')", f"endswith({left}, '')"]
    return rng.choice(shapes)


def test_a_condition_holds_for_the_rows_for_which_it_does_in_spark(spark: SparkSession) -> None:
    rng = random.Random(7)
    rows = [
        {name: rng.choice([None, *values, *values]) for name, values in VALUES.items()}
        for _ in range(60)
    ]
    table = pa.Table.from_pylist(rows, SCHEMA)
    found = dict.fromkeys(condition(rng) for _ in range(400))
    spark_rows = spark.createDataFrame(table)
    columns = [F.coalesce(F.expr(sql), F.lit(False)).alias(f"c{n}") for n, sql in enumerate(found)]
    wanted = spark_rows.select(*columns).toArrow()
    for n, sql in enumerate(found):
        actual = Condition(sql).holds(table).to_pylist()
        expected = wanted[f"c{n}"].to_pylist()
        wrong = [rows[i] for i in range(len(rows)) if actual[i] != expected[i]]
        assert not wrong, f"{sql}: {wrong[0]}"
    assert sum(any(wanted[name].to_pylist()) for name in wanted.column_names) > 200


@pytest.mark.parametrize(
    ("sql", "says"),
    [
        ("lower(name) = 'a'", "has 'LOWER(name)', which is not evaluated without Spark"),
        ("small + 1 = 2", "has 'small + 1'"),
        ("name ILIKE 'a'", "has 'name ILIKE 'a''"),
        ("name LIKE 'a' ESCAPE '!'", "ESCAPE"),
        ("name RLIKE 'a'", "RLIKE"),
        ("CAST(name AS INT) = 1", "CAST(name AS INT)"),
        ("name = 'a\\nb'", "has a backslash"),
        ("small IN (SELECT 1)", "SELECT"),
        ("1 = 1", "names no column"),
        ("small", "has 'small' as a condition, which is a number"),
        ("small = NULL", "use IS NULL"),
        ("small = '1'", "compares a number with a text"),
        ("place = place", "compares a struct with a struct"),
        ("flag > false", "compares booleans by their size"),
        ("day = 'yesterday'", "has 'yesterday' as a date; write it as YYYY-MM-DD"),
        ("day = '2026-02-30'", "has '2026-02-30' as a date"),
        ("seen = name", "compares an instant with a text that is no literal"),
        ("place.nothing = 1", "but 'place' has only city, zip"),
        ("nothing = 1", "uses 'nothing', which is not a column of its table; they are flag"),
        ("length(small) = 1", "needs a text, but 'small' is a number"),
        ("name LIKE name", "has 'name' where it needs a text in quotes"),
    ],
)
def test_what_is_not_evaluated_without_spark_is_refused(sql: str, says: str) -> None:
    with pytest.raises(ValueError) as caught:  # noqa: PT011 - the text is compared
        Condition(sql).check(SCHEMA)
    assert says in str(caught.value)
