"""Tests positions and their stored form."""

import json

from hypothesis import given
from hypothesis import strategies as st

from pulsar_spark.offsets import (
    START,
    WHOLE,
    Estimate,
    Position,
    estimate_of,
    from_json,
    to_json,
    with_estimate,
)

NUMBERS = st.integers(min_value=-1, max_value=2**63 - 1)
POSITIONS = st.builds(Position, NUMBERS, NUMBERS, st.integers(0, WHOLE))


PARTITIONS = st.text().map("persistent://{}".format)  # so no name is one of the other members


@given(st.dictionaries(PARTITIONS, POSITIONS))
def test_an_offset_survives_the_checkpoint(offset: dict[str, Position]) -> None:
    assert from_json(json.loads(json.dumps(to_json(offset)))) == offset
    stored = json.loads(json.dumps(with_estimate(to_json(offset), Estimate(5, 700))))
    assert (from_json(stored), estimate_of(stored)) == (offset, Estimate(5, 700))


@given(st.dictionaries(PARTITIONS, POSITIONS))
def test_equal_offsets_have_equal_text(offset: dict[str, Position]) -> None:
    # Spark compares the texts to find out whether there is new data.
    backwards = dict(reversed(offset.items()))
    assert json.dumps(to_json(offset)) == json.dumps(to_json(backwards))


@given(POSITIONS, POSITIONS)
def test_positions_are_ordered_by_ledger_entry_and_batch_index(
    one: Position, other: Position
) -> None:
    assert (one < other) == ([*one] < [*other])
    assert one[:2] >= START[:2]
