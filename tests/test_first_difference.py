"""Tests how failed comparisons of tables are explained."""

from typing import Any

import pytest
from first_difference import first_difference

ROWS = {(n, 0): {"name": f"n{n}"} for n in range(9)}


@pytest.mark.parametrize(
    ("left", "right", "said"),
    [
        (
            ROWS,
            {**ROWS, (4, 0): {"name": "x"}, (5, 0): {"name": "y"}},
            [
                "entries that differ: 2 (left has 9, right has 9)",
                "first: (4, 0)",
                "  left:  {'name': 'n4'}",
                "  right: {'name': 'x'}",
            ],
        ),
        (
            [1, 2, 3, 4],
            [1, 2, 3, 4, 5],
            [
                "entries that differ: 1 (left has 4, right has 5)",
                "first: 4",
                "  left:  (absent)",
                "  right: 5",
            ],
        ),
        (
            {1, 2, 3, 4},
            {2, 3, 4},
            [
                "entries that differ: 1 (left has 4, right has 3)",
                "first: 1",
                "  left:  1",
                "  right: (absent)",
            ],
        ),
        ([1], [2], None),
        ("a" * 9, "b" * 9, None),
    ],
)
def test_the_first_difference_is_named(left: Any, right: Any, said: list[str] | None) -> None:
    assert first_difference(left, right) == said


def test_a_failed_assertion_uses_it() -> None:
    with pytest.raises(AssertionError, match=r"first: \(4, 0\)"):
        assert {**ROWS} == {**ROWS, (4, 0): {}}
