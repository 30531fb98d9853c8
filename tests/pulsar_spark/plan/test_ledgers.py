"""Tests ledger arithmetic against an explicit list of entries."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pulsar_spark.offsets import START, WHOLE, Position
from pulsar_spark.plan.ledgers import Ledger, PartitionLog, share

LEDGERS = st.lists(st.integers(0, 6), max_size=5).map(
    lambda counts: [Ledger(3 * n, count, 100 * count) for n, count in enumerate(counts)]
)

POSITIONS = st.builds(
    Position, st.integers(-1, 16), st.integers(-1, 7), st.sampled_from([0, 3, WHOLE])
)


def entries(ledgers: list[Ledger]) -> list[Position]:
    return [Position(ledger.id, entry) for ledger in ledgers for entry in range(ledger.entries)]


@given(LEDGERS, POSITIONS, st.integers(0, 40))
def test_a_log_counts_and_advances_like_a_list_of_its_entries(
    ledgers: list[Ledger], position: Position, count: int
) -> None:
    log = PartitionLog(ledgers)
    behind = [p for p in entries(ledgers) if p > position]
    assert log.entries_behind(position) == len(behind)
    assert log.bytes_behind(position) == 100 * len(behind)
    expected = behind[min(count, len(behind)) - 1] if behind and count else position
    assert log.advance(position, count) == expected


def test_bytes_are_spread_evenly_within_a_ledger() -> None:
    log = PartitionLog([Ledger(1, 4, 1000), Ledger(2, 2, 10)])
    assert log.bytes_behind(Position(1, 0)) == 760
    assert log.bytes_behind(START) == 1010


def test_bytes_are_exact_at_each_observed_end_of_a_ledger() -> None:
    seen = [Ledger(1, 10, 1000), Ledger(2, 1, 8), Ledger(2, 3, 5000)]
    log = PartitionLog([Ledger(1, 10, 1000), Ledger(2, 5, 5010)], seen)
    assert log.bytes_behind(Position(2, 2)) == 10
    assert log.bytes_behind(Position(2, 0)) == 5002
    assert log.bytes_behind(Position(2, 1)) == 2506, "bytes are spread evenly between two looks"
    assert log.bytes_behind(START) == 6010


@given(st.dictionaries(st.text(max_size=3), st.integers(0, 10**6)), st.integers(1, 10**6))
def test_a_limit_is_shared_so_that_no_partition_starves(
    waiting: dict[str, int], limit: int
) -> None:
    shares = share(limit, waiting)
    assert sum(shares.values()) <= limit + len(waiting)
    for name, count in waiting.items():
        assert shares.get(name, 0) <= max(count, 1)
        assert (shares.get(name, 0) > 0) == (count > 0)


def test_a_limit_is_shared_in_proportion_to_what_waits() -> None:
    assert share(100, {"a": 900, "b": 100, "c": 0}) == {"a": 90, "b": 10}
    assert share(1000, {"a": 900, "b": 100}) == pytest.approx({"a": 900, "b": 100})
