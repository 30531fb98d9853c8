"""Tests the parts of Pulsar's binary protocol that the source reads by itself.

Encoded messages are those of PulsarApi.proto. That entries of a real broker are read, over TLS and
with a token, too, is tested with the reader and the connection.
"""

import struct
import zlib

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pulsar_spark.broker.wire import Entry, Metadata, decode
from pulsar_spark.errors import BrokerError
from pulsar_spark.offsets import Position

PLACE = Position(1, 2)


def varint(number: int) -> bytes:
    groups = [number >> shift & 0x7F for shift in range(0, 64, 7) if number >> shift] or [0]
    return bytes([*(group | 0x80 for group in groups[:-1]), groups[-1]])


def numeric(field: int, value: int) -> bytes:
    return varint(field << 3) + varint(value)


def binary(field: int, value: bytes) -> bytes:
    return varint(field << 3 | 2) + varint(len(value)) + value


@given(
    st.lists(
        st.tuples(st.integers(1, 2**20), st.integers(0, 2**64 - 1) | st.binary(max_size=300)),
        max_size=20,
    )
)
def test_fields_are_found_by_number_with_all_their_values(
    fields: list[tuple[int, int | bytes]],
) -> None:
    message, expected = b"", dict[int, list[int | bytes]]()
    for number, value in fields:
        message += numeric(number, value) if isinstance(value, int) else binary(number, value)
        expected.setdefault(number, []).append(value)
    assert decode(message) == expected


def test_numbers_of_fixed_size_are_skipped_whole() -> None:
    fixed = varint(4 << 3 | 1) + bytes(8) + varint(5 << 3 | 5) + bytes(4)
    assert decode(fixed + numeric(6, 7))[6] == [7]


def test_metadata_is_kept_byte_for_byte() -> None:
    pair = binary(4, binary(1, b"\xff") + binary(2, b"caf\xe9"))
    entry = Entry(PLACE, decode(binary(6, b"\x80") + pair + numeric(12, 2**64 - 1)), b"")
    assert entry.metadata() == Metadata(b"\x80", [(b"\xff", b"caf\xe9")], 2**64 - 1, False)
    assert (entry.messages, entry.chunk, entry.chunks) == (1, None, None)
    assert entry.batch() == [entry.metadata()]


def test_each_message_of_a_batch_has_its_own_metadata() -> None:
    singles = [
        (binary(2, b"one") + numeric(3, 3) + numeric(5, 9), b"abc"),
        (numeric(3, 0) + numeric(9, 1), b""),
    ]
    payload = b"".join(struct.pack(">I", len(each)) + each + value for each, value in singles)
    fields = numeric(11, 2) + numeric(8, 2) + numeric(9, len(payload))
    entry = Entry(PLACE, decode(fields), zlib.compress(payload))
    assert entry.messages == 2
    assert entry.batch() == [Metadata(b"one", [], 9, False), Metadata(None, [], 0, True)]


def test_a_chunk_knows_its_number_and_its_message() -> None:
    fields = binary(26, b"producer-4") + numeric(27, 3) + numeric(29, 2) + numeric(3, 1_700)
    entry = Entry(PLACE, decode(fields), b"")
    assert (entry.chunk, entry.chunks, entry.uuid) == (2, 3, b"producer-4")
    assert entry.publish_time == 1_700
    only = Entry(PLACE, decode(numeric(27, 1) + numeric(29, 0)), b"")
    assert only.chunk is None, "a message of one chunk is whole"


@pytest.mark.parametrize(
    ("kind", "codec"), [(0, None), (1, "lz4_raw"), (2, "zlib"), (3, "zstd"), (4, "snappy")]
)
def test_a_payload_is_decompressed_with_the_codec_of_its_metadata(
    kind: int, codec: str | None
) -> None:
    content = b"payload " * 100
    stored = content
    if codec == "zlib":
        stored = zlib.compress(content)
    elif codec:
        stored = pa.Codec(codec).compress(content, asbytes=True)
    entry = Entry(PLACE, decode(numeric(8, kind) + numeric(9, len(content))), stored)
    assert entry.content(stored) == content


@pytest.mark.parametrize("fields", [numeric(8, 5), binary(13, b"key")])
def test_an_encrypted_payload_or_an_unknown_codec_is_refused(fields: bytes) -> None:
    with pytest.raises(BrokerError, match="Entry 1:2 is encrypted, or its codec is unknown"):
        Entry(PLACE, decode(fields), b"").content(b"x")
