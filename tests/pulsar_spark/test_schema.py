"""Tests that the columns of a message are those that the reader fills."""

from pulsar_spark.read.reader import ARROW_SCHEMA
from pulsar_spark.schema import ADDED, ENVELOPE, ORDER_FIELDS, POSITION_FIELDS

NAMES = [column.name for column in ENVELOPE]


def test_the_reader_fills_the_columns_of_the_envelope_in_their_order() -> None:
    assert ARROW_SCHEMA.names == NAMES


def test_a_position_and_an_order_are_made_of_columns() -> None:
    assert {*POSITION_FIELDS, *ORDER_FIELDS} <= {*NAMES, "order_time"}
    assert {*POSITION_FIELDS} <= {*ORDER_FIELDS}


def test_columns_that_were_added_later_may_be_null() -> None:
    assert {*NAMES} >= ADDED
    assert all(column.nullable for column in ENVELOPE if column.name in ADDED)
