"""Tests the names of published tables. `test_publish.py` tests what is published."""

import pytest

from gold.tables import mart_name, table_name


@pytest.mark.parametrize(
    ("schema", "table", "name"),
    [(None, "x", "x"), ("gold", "x", "x"), ("marketing", "x", "marketing.x")],
)
def test_a_mart_is_named_by_its_schema_unless_it_is_in_gold(
    schema: str | None, table: str, name: str
) -> None:
    assert mart_name(schema, table) == name
    assert table_name(name) == (schema or "gold", table)
