"""Tests the cells of each type against the documented types."""

import json
import random
from typing import Any

import pytest
from types_model import RefusedError, read_json, value_of

from lake.topics.topic import FieldSpec, Topic
from lakehouse.messages.encode import RowEncoder, cell_fits
from lakehouse.messages.plausible.cells import (
    TIMES,
    broken_cell,
    capacity,
    key_cell,
    rising_cell,
    time_cell,
)

TYPES = (
    *("boolean", "int", "long", "float", "double", "string", "binary", "date", "timestamp"),
    "timestamp_ms",
    *("decimal(1,0)", "decimal(1,1)", "decimal(3,1)", "decimal(12,2)", "decimal(38,0)"),
    *("decimal(38,38)", "decimal(38,18)"),
)
NOW = 1_750_000_000_123


def value(kind: str, cell: str) -> Any:
    """Return the value that silver has for a cell, by the documented types."""
    topic = Topic(name="t", kind="events", key=["v"], fields={"v": FieldSpec(type=kind)})
    message = RowEncoder(topic, ["v"], "t.csv").encode({"v": cell}, 2)
    return value_of(kind, read_json(message.value.decode())["v"])


@pytest.mark.parametrize("kind", TYPES)
def test_each_number_is_another_key_until_the_type_has_no_more(kind: str) -> None:
    numbers = range(1, min(capacity(kind), 1_000) + 1)
    cells = [key_cell(kind, "who", number) for number in numbers]
    assert len({value(kind, cell) for cell in cells}) == len(numbers)
    largest = key_cell(kind, "who", capacity(kind))
    assert value(kind, largest) is not None
    assert key_cell(kind, "who", capacity(kind) + 1) == cells[0]


@pytest.mark.parametrize("kind", TYPES)
def test_a_rising_value_never_falls_and_rises_with_each_row_if_the_type_can(kind: str) -> None:
    values = [value(kind, rising_cell(kind, row, NOW + row)) for row in range(1, 200)]
    assert values == sorted(values)
    if capacity(kind) > 200 and kind != "date":
        assert len({*values}) == len(values)


@pytest.mark.parametrize("kind", TYPES)
def test_a_broken_cell_is_published_and_its_value_is_of_another_type(kind: str) -> None:
    cell = broken_cell(random.Random(1), kind)
    if cell is None:
        assert kind in ("boolean", "string", "binary", "date")
        return
    assert cell_fits(FieldSpec(type=kind), cell)
    with pytest.raises(RefusedError):
        value(kind, cell)


@pytest.mark.parametrize("kind", TIMES)
def test_a_time_is_an_event_time_to_the_millisecond_or_the_day(kind: str) -> None:
    fields = {"v": FieldSpec(type=kind)}
    topic = Topic(name="t", kind="events", key=["v"], event_time="v", fields=fields)
    message = RowEncoder(topic, ["v"], "t.csv").encode({"v": time_cell(kind, NOW)}, 2)
    day = 24 * 3_600_000
    assert message.event_time_ms == (NOW // day * day if kind == "date" else NOW)
    assert json.loads(message.value)["v"]
