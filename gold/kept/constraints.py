"""Turns tests of a model into constraints of its table, which Delta enforces at each write.

A test that looks at each row on its own need not read the table after each build. These are
`not_null`, `accepted_values`, and `accepted_range` and `no_nulls` of `gold/package`.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from sqlglot import tokenize

from lake.kept.query import DIALECT
from lake.quoting import identifier, literal

PREFIX = "delta.constraints."  # of the properties of a table that are its constraints

# A test that changes one of these settings counts or compares failures differently.
PLAIN = MappingProxyType(
    {
        "enabled": True,
        "error_if": "!= 0",
        "fail_calc": "count(*)",
        "limit": None,
        "severity": "ERROR",
        "store_failures": None,
        "where": None,
    }
)

Arguments = Mapping[str, Any]


def constraint_of(test: Mapping[str, Any]) -> tuple[str, str] | None:
    """The constraint that is the same as a test.

    Args:
        test: a node of dbt's graph.

    Returns:
        The name of the constraint, and its SQL, which Spark and delta-rs read alike. None if the
        test is not of single rows, or has a setting or a value that a constraint cannot express.
    """
    config = test["config"]
    if not all(config.get(name, value) == value for name, value in PLAIN.items()):
        return None
    for macro in test["depends_on"]["macros"]:
        if macro in CONDITIONS:
            sql = CONDITIONS[macro](test["test_metadata"]["kwargs"])
            return None if sql is None else (test["alias"].lower(), sql)
    return None


def constraints_of(model: str, nodes: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    """The constraints of a model's table, by name.

    Args:
        model: the unique id of the model.
        nodes: all nodes of dbt's graph.
    """
    tests = (node for node in nodes if node["resource_type"] == "test")
    mine = (test for test in tests if test.get("attached_node") == model)
    return dict(found for test in mine if (found := constraint_of(test)))


def is_same(one: str | None, other: str | None) -> bool:
    """Whether two constraints are the same. Spark separates the words of a new one by blanks."""
    if one is None or other is None:
        return False
    return _words(one) == _words(other)


def _words(sql: str) -> list[tuple[object, str]]:
    return [(token.token_type, token.text) for token in tokenize(sql, DIALECT)]


def _not_null(arguments: Arguments) -> str | None:
    return f"{identifier(arguments['column_name'])} is not null"


def _no_nulls(arguments: Arguments) -> str | None:
    return " and ".join(f"{identifier(name)} is not null" for name in arguments["columns"])


def _accepted_values(arguments: Arguments) -> str | None:
    values: Sequence[Any] = arguments["values"]
    if arguments.get("quote", True):
        texts = [str(value) for value in values]
        if any("'" in text or "\\" in text for text in texts):
            return None  # Spark and delta-rs escape these differently
        listed = ", ".join(map(literal, texts))
    elif all(map(_is_number, values)):
        listed = ", ".join(map(str, values))
    else:
        return None
    name = identifier(arguments["column_name"])
    return f"{name} is null or {name} in ({listed})"


def _accepted_range(arguments: Arguments) -> str | None:
    name = identifier(arguments["column_name"])
    equal = "=" if arguments.get("inclusive", True) else ""
    bounds = [
        (f"{name} {sign}{equal} {bound}", bound)
        for sign, argument in ((">", "min_value"), ("<", "max_value"))
        if (bound := arguments.get(argument)) is not None
    ]
    if not bounds or not all(_is_number(bound) for _, bound in bounds):
        return None
    return f"{name} is null or ({' and '.join(sql for sql, _ in bounds)})"


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


# By the macro of the test. A project may have a macro of its own with the same name.
CONDITIONS: Mapping[str, Callable[[Arguments], str | None]] = {
    "macro.dbt.test_accepted_values": _accepted_values,
    "macro.dbt.test_not_null": _not_null,
    "macro.dbt_lakehouse.test_accepted_range": _accepted_range,
    "macro.dbt_lakehouse.test_no_nulls": _no_nulls,
    "macro.dbt_utils.test_accepted_range": _accepted_range,
}
