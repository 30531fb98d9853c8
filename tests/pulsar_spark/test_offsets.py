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
from pulsar_spark.read.reader import batch_size, split_partition

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


def test_the_partition_is_read_from_the_topics_name() -> None:
    assert split_partition("persistent://a/b/orders-partition-3") == ("persistent://a/b/orders", 3)
    assert split_partition("persistent://a/b/orders") == ("persistent://a/b/orders", -1)
    assert split_partition("persistent://a/b/x-partition-y") == (
        "persistent://a/b/x-partition-y",
        -1,
    )


def varint(number: int) -> bytes:
    out = bytearray()
    while True:
        out.append((number & 0x7F) | (0x80 if number > 0x7F else 0))
        number >>= 7
        if not number:
            return bytes(out)


@given(st.integers(0, 2**62), st.integers(0, 2**62), st.integers(1, 100_000), st.binary())
def test_the_batch_size_is_found_among_the_fields_of_a_message_id(
    ledger: int, entry: int, size: int, ack_set: bytes
) -> None:
    # MessageIdData: ledgerId = 1, entryId = 2, ack_set = 5 (packed), batch_size = 6.
    before = b"\x08" + varint(ledger) + b"\x10" + varint(entry)
    packed = b"\x2a" + varint(len(ack_set)) + ack_set
    assert batch_size(before + packed + b"\x30" + varint(size)) == size
    assert batch_size(before) == 1
