"""Tests how the results of a dbt run are read."""

import json
from pathlib import Path
from typing import Any

import pytest

from gold.dbt.results import UNTOLD, NodeResult, read_results


def result(unique_id: str, status: str, message: str | None = None) -> dict[str, Any]:
    return {"unique_id": unique_id, "status": status, "execution_time": 0.5, "message": message}


def test_models_tests_and_failures_are_told_apart(tmp_path: Path) -> None:
    file = tmp_path / "run_results.json"
    results = [
        result("model.lakehouse.sales_by_day", "success"),
        result("test.lakehouse.not_null_sales_by_day_day.1a2b", "fail", "Got 2\n  results"),
        result("unit_test.lakehouse.sales_by_day.a_refund", "error"),
        result("model.lakehouse.customers", "skipped"),
        result("operation.lakehouse.lakehouse-on-run-start-0", "success"),
    ]
    results[1]["compiled_code"] = "select 1"
    file.write_text(json.dumps({"results": results}))
    build = read_results(file)
    assert [node.name for node in build.models] == ["sales_by_day", "customers"]
    assert [node.kind for node in build.tests] == ["test", "unit_test"]
    assert [(str(node), node.sql) for node in build.failed] == [
        ("test not_null_sales_by_day_day: Got 2 results", "select 1"),
        ("unit_test sales_by_day: no message", None),
    ]
    assert build.published is None


def test_a_message_of_spark_is_shown_without_javas_and_told_without_values() -> None:
    """The message that dbt gives if Delta refuses a row."""
    message = """Runtime Error in model m (models/m.sql)
  Database Error
    org.apache.hive.service.cli.HiveSQLException: Error running query: [DELTA_VIOLATE_CONSTRAINT] \
org.apache.spark.sql.delta.schema.DeltaInvariantViolationException: [DELTA_VIOLATE_CONSTRAINT] \
CHECK constraint few (n < 5) violated by row with values:
     - n : 7
    \tat org.apache.spark.sql.hive.thriftserver.HiveThriftServerErrors$.error(Errors.scala:46)
"""
    node = NodeResult("m", "model", "error", 1.0, message, None)
    assert str(node) == (
        "model m: [DELTA_VIOLATE_CONSTRAINT] CHECK constraint few (n < 5) violated by row with "
        "values: - n : 7"
    )
    assert node.without_values == "model m: [DELTA_VIOLATE_CONSTRAINT]"


STATEMENT = "[UNRESOLVED_COLUMN.WITH_SUGGESTION] A column `x` cannot be resolved. SQLSTATE: 42703"
CAST = "[CAST_INVALID_INPUT] The value 'Ann' of the type \"STRING\" is malformed. SQLSTATE: 22018"
COUNT = "[DELTA_NEW_CHECK_CONSTRAINT_VIOLATION] 1 rows in t violate the new CHECK constraint (n<5)"
SAFE = {
    ("test", "fail", "Got 2 results, configured to fail if != 0"): True,
    ("test", "error", f"Runtime Error\n  {CAST}"): "[CAST_INVALID_INPUT]",
    ("test", "fail", "Ann"): UNTOLD,
    ("model", "error", f"Database Error\n  Query failed: {STATEMENT}"): STATEMENT,
    ("model", "error", f"Runtime Error\n  {COUNT}"): COUNT,
    ("model", "error", CAST): "[CAST_INVALID_INPUT]",
    ("model", "error", "Compilation Error in model m\n  'x' is undefined"): True,
    ("model", "error", "Database Error\n  java.lang.RuntimeException: Ann"): UNTOLD,
    ("model", "error", CAST.replace("Ann", "SQLSTATE: 42000")): "[CAST_INVALID_INPUT]",
    ("model", "success", "kept (16 rows)"): True,
    ("model", "skipped", None): True,
}


@pytest.mark.parametrize(("result", "kept"), SAFE.items(), ids=map(str, range(len(SAFE))))
def test_only_messages_that_hold_no_values_are_told(
    result: tuple[str, str, str | None], kept: str | bool
) -> None:
    """`kept` is the text that is shown, or True if the whole message is shown."""
    kind, status, message = result
    node = NodeResult("m", kind, status, 1.0, message, None)
    expected = message if kept is True else kept
    assert node.message_without_values == expected
    assert node.without_values == f"{kind} m: {expected}"
