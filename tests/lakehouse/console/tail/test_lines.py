"""Tests which lines a filter of the live page shows."""

import pytest

from lakehouse.console.tail.lines import LONGEST, Filter, Line

VALUES = {
    "id": 7,
    "Name": "Ann",
    "email": "***",
    "address": {"city": "Bern", "zip.code": "1"},
    "lines": [{"sku": "a"}, {"sku": "b", "count": 1.5}],
    "gone": None,
    "paid": True,
}
LINE = Line(1.0, "message", "3:4:0", "K-1", '{"Name": "Ann", "email": "***"}', VALUES)


@pytest.mark.parametrize(
    ("given", "fits"),
    [
        ("", True),
        ("ann", True),
        ("k-1", True),
        ("bob", False),
        ("id=7", True),
        ("id = 7", True),
        ("ID=7", True),
        ("id=8", False),
        ("name=Ann", True),
        ("name=ann", False),
        ("address.city=Bern", True),
        ("address.zip.code=1", True),
        ("lines.sku=b", True),
        ("lines.sku=c", False),
        ("lines.count=1.5", True),
        ("paid=true", True),
        ("gone=null", True),
        ("key=K-1", True),
        ("email=a@b.org", False),
        ("email=***", True),
        ("none=x", False),
        ("a b = c", False),
    ],
)
def test_a_filter_is_a_text_or_the_value_of_a_field(given: str, fits: bool) -> None:
    assert Filter.parse(given).fits(LINE) is fits


def test_long_lines_are_cut() -> None:
    *_, text = Line(None, "message", "", "", "x" * 5000).as_json()
    assert len(text) == LONGEST
    assert text.endswith("…")
