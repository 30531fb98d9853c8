"""Tests which tests of a model become constraints of its table, and what these allow."""

from typing import Any

import duckdb
import pytest

from gold.kept.constraints import constraint_of, constraints_of

CONFIG = {
    "enabled": True,
    "severity": "ERROR",
    "store_failures": None,
    "where": None,
    "limit": None,
    "fail_calc": "count(*)",
    "warn_if": "!= 0",
    "error_if": "!= 0",
}


def node(name: str, package: str = "dbt", **arguments: Any) -> dict[str, Any]:
    """A test as dbt's graph describes it."""
    return {
        "resource_type": "test",
        "alias": "A_name",
        "attached_node": "model.shop.m",
        "test_metadata": {"name": name, "kwargs": arguments},
        "depends_on": {
            "macros": [f"macro.{package}.test_{name}", "macro.dbt.should_store_failures"]
        },
        "config": CONFIG,
    }


ALLOWED: list[tuple[dict[str, Any], list[str], list[str]]] = [
    (node("not_null", column_name="x"), ["1", "0"], ["null"]),
    (node("no_nulls", "dbt_lakehouse", columns=["x", "y"]), ["1"], ["null"]),
    (node("accepted_values", column_name="x", values=[1, 2], quote=False), ["1", "null"], ["3"]),
    (node("accepted_values", column_name="x", values=["1", "2"]), ["1", "null"], ["3"]),
    (
        node("accepted_range", "dbt_lakehouse", column_name="x", min_value=0),
        ["0", "9", "null"],
        ["-1"],
    ),
    (
        node("accepted_range", "dbt_utils", column_name="x", min_value=0, max_value=2.5),
        ["0", "2"],
        ["-1", "3"],
    ),
    (
        node(
            "accepted_range",
            "dbt_lakehouse",
            column_name="x",
            min_value=0,
            max_value=2,
            inclusive=False,
        ),
        ["1", "null"],
        ["0", "2"],
    ),
]


@pytest.mark.parametrize(("test", "passes", "fails"), ALLOWED)
def test_a_constraint_allows_what_the_test_allows(
    test: dict[str, Any], passes: list[str], fails: list[str]
) -> None:
    """DuckDB decides, as both have the same SQL for this. A CHECK passes only if it is true."""
    found = constraint_of(test)
    assert found is not None
    name, sql = found
    assert name == "a_name"
    sql = sql.replace("`", '"')
    for value in passes + fails:
        cursor = duckdb.sql(f"select {sql} from (select {value}::int as x, 1 as y)")
        [(holds,)] = cursor.fetchall()
        assert holds is (value in passes), value


@pytest.mark.parametrize(
    "test",
    [
        node("relationships", column_name="x", to="ref('n')", field="x"),
        node("unique", column_name="x"),
        node("not_null", "own", column_name="x"),
        node("accepted_values", column_name="x", values=["it's"]),
        node("accepted_values", column_name="x", values=["a\\b"]),
        node("accepted_values", column_name="x", values=["y + 1"], quote=False),
        node("accepted_range", "dbt_lakehouse", column_name="x", min_value="y"),
        node("accepted_range", "dbt_lakehouse", column_name="x"),
        {"resource_type": "test", "config": CONFIG, "depends_on": {"macros": []}},
        *(
            {**node("not_null", column_name="x"), "config": {**CONFIG, name: value}}
            for name, value in {
                "enabled": False,
                "severity": "warn",
                "where": "y > 0",
                "limit": 5,
                "error_if": "> 10",
                "fail_calc": "sum(x)",
                "store_failures": True,
            }.items()
        ),
    ],
)
def test_other_tests_are_run_after_the_build(test: dict[str, Any]) -> None:
    assert constraint_of(test) is None


def test_a_table_has_the_constraints_of_its_own_model() -> None:
    nodes = [
        node("not_null", column_name="x"),
        {**node("not_null", column_name="y"), "alias": "other", "attached_node": "model.shop.n"},
        {"resource_type": "test", "config": CONFIG, "depends_on": {"macros": []}},
        {"resource_type": "model", "unique_id": "model.shop.m"},
    ]
    assert constraints_of("model.shop.m", nodes) == {"a_name": "`x` is not null"}
    assert constraints_of("model.shop.o", nodes) == {}
