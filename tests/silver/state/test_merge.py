"""Tests the choice of the latest row of each key among rows in the driver."""

import datetime as dt

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from silver.state.merge import latest_here

PLACE = pa.struct(
    [("order_time", pa.timestamp("us")), ("ledger", pa.int64()), ("entry", pa.int64())]
)
SCHEMA = pa.schema([("id", pa.int64()), ("line", pa.string()), ("position", PLACE)])
EPOCH = dt.datetime(1970, 1, 1)  # noqa: DTZ001 - as Arrow has them
rows = st.tuples(st.integers(-2, 2), st.sampled_from(["a", "b"]), st.integers(0, 20))


@settings(deadline=None)
@given(st.lists(rows, max_size=30))
def test_the_latest_row_has_the_highest_position_in_any_order_of_rows(
    found: list[tuple[int, str, int]],
) -> None:
    table = pa.Table.from_pylist(
        [
            {
                "id": key,
                "line": line,
                "position": {"order_time": n // 9 or None, "ledger": n % 9 // 3, "entry": n % 3},
            }
            for key, line, n in found
        ],
        SCHEMA,
    )
    latest = latest_here(table, ["id", "line"]).to_pylist()
    assert len(latest) == len({(key, line) for key, line, _ in found})
    for row in latest:
        place = row["position"]
        micros = (place["order_time"] or EPOCH) - EPOCH
        number = micros.microseconds * 9 + place["ledger"] * 3 + place["entry"]
        same = [n for key, line, n in found if (key, line) == (row["id"], row["line"])]
        assert number == max(same)


def test_a_sequence_comes_before_the_position_and_the_last_of_equal_rows_stays() -> None:
    table = pa.table(
        {
            "id": [1, 1, 1, 2, 2],
            "at": pa.array([5, 7, 7, None, -1], pa.int64()),
            "position": [{"entry": 9}, {"entry": 1}, {"entry": 1}, {"entry": 8}, {"entry": 0}],
            "which": ["low", "equal", "last", "null", "later"],
        }
    )
    latest = latest_here(table, ["id"], ["at", "position"])
    assert sorted(latest["which"].to_pylist()) == ["last", "later"]
