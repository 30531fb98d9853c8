"""Tests conditions on keys for delta-rs."""

import datetime as dt

import pyarrow as pa
import pytest

from lake.tables.keys import is_found_by, literal_of, same_key

START = dt.datetime(2026, 1, 1, tzinfo=dt.timezone.utc)


@pytest.mark.parametrize(
    ("values", "is_found"),
    [
        (pa.array([1, None]), True),
        (pa.array(["a"]), True),
        (pa.array([dt.date(2026, 1, 1)]), True),
        (pa.array([START, START + dt.timedelta(milliseconds=1)]), True),
        (pa.array([START, START + dt.timedelta(microseconds=1500)]), False),
        (pa.array([None], pa.timestamp("us", "UTC")), True),
        (pa.array([0.5]), False),
        (pa.array([b"a"]), False),
        (pa.array([{"entry": 1, "at": START}]), True),
        (pa.array([{"entry": 1, "at": 0.5}]), False),
        (pa.array([[1]]), False),
        (pa.array([], pa.int64()), True),
    ],
    ids=str,
)
def test_some_values_are_left_to_spark(values: pa.Array, is_found: bool) -> None:
    assert is_found_by(pa.chunked_array([values])) == is_found


def test_keys_are_compared_member_by_member_and_null_is_equal_to_null() -> None:
    keys = pa.table(
        {
            "id": [7, 3],
            "na me": ["a", None],
            "position": [{"entry": 1, "order_time": None}, {"entry": 2, "order_time": None}],
        }
    )
    assert same_key(keys) == (
        't."id" = s."id" AND (t."na me" IS NOT DISTINCT FROM s."na me") '
        "AND t.\"position\"['entry'] = s.\"position\"['entry'] "
        "AND (t.\"position\"['order_time'] IS NOT DISTINCT FROM s.\"position\"['order_time']) "
        'AND t."id" >= 3 AND t."id" <= 7'
    )
    assert same_key(pa.table({"id": ["o'brien"]})).endswith("t.\"id\" <= 'o''brien'")


def test_literals_are_quoted_as_datafusion_does() -> None:
    assert [*map(literal_of, [1, "it's \\", dt.date(2026, 1, 2)])] == [
        "1",
        "'it''s \\'",
        "'2026-01-02'",
    ]
