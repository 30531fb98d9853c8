"""Tests the names that a topic declares."""

import pytest

from lake.topics.topic import snake_case


@pytest.mark.parametrize(
    ("field", "column"),
    [("id", "id"), ("parentUserId", "parent_user_id"), ("line2Item", "line2_item")],
)
def test_columns_are_in_snake_case(field: str, column: str) -> None:
    assert snake_case(field) == column
