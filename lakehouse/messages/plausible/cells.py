"""Cells of a CSV file by the type of their field: keys, times, rising values and broken ones.

Each cell is accepted by `encode.py` and, except those of `broken_cell`, by silver.
"""

import base64
import datetime as dt
import random
from functools import cache

from lake.topics.topic import DECIMAL

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
MANY = 2**31 - 1
TIMES = ("date", "timestamp", "timestamp_ms", "string", "long")  # types that can hold an instant
EPOCH = dt.datetime(1970, 1, 1)  # noqa: DTZ001 - all times are UTC, written without an offset
FIRST_KEY_DAY = dt.date(2000, 1, 1)
FIRST_KEY_MS = 946_684_800_000  # the same day


@cache
def capacity(kind: str) -> int:
    """How many different keys a type can hold; `MANY` or more are not distinguished."""
    if decimal := DECIMAL.fullmatch(kind):
        digits, scale = int(decimal[1]), int(decimal[2])
        largest: int = 10 ** (digits - scale or scale) - 1
        return max(min(largest, MANY), 1)
    return {"boolean": 2, "date": 1_000_000, "float": 1 << 24}.get(kind, MANY)


def key_cell(kind: str, prefix: str, number: int) -> str:
    """The key with a number, from 1. Equal numbers give equal keys in all topics.

    Numbers above the capacity of the type begin with 1 again.
    """
    number = 1 + (number - 1) % capacity(kind)
    if decimal := DECIMAL.fullmatch(kind):
        digits, scale = int(decimal[1]), int(decimal[2])
        return f"0.{number:0{scale}d}" if digits == scale else str(number)
    if kind == "boolean":
        return "true" if number % 2 else "false"
    if kind == "binary":
        return base64.b64encode(number.to_bytes(8, "big")).decode()
    if kind == "date":
        return (FIRST_KEY_DAY + dt.timedelta(days=number)).isoformat()
    if kind in ("timestamp", "timestamp_ms"):
        return time_cell(kind, FIRST_KEY_MS + 1000 * number)
    if kind == "string":
        return f"{prefix}-{number}"
    return f"{number}.0" if kind in ("float", "double") else str(number)


def time_cell(kind: str, moment: int) -> str:
    """An instant, in epoch milliseconds, as a cell of one of the types `TIMES`."""
    if kind == "long":
        return str(moment)
    instant = EPOCH + dt.timedelta(milliseconds=moment)
    return (instant.date() if kind == "date" else instant).isoformat()


def rising_cell(kind: str, row: int, moment: int) -> str:
    """A value that rises with the row, from 1, and its instant, as far as the type has values."""
    if kind in ("date", "timestamp", "timestamp_ms"):
        return time_cell(kind, moment)
    if kind == "string":
        return f"{row:012d}"
    if kind == "boolean":
        return "false" if row == 1 else "true"
    return key_cell(kind, "", min(row, capacity(kind)))


def broken_cell(rng: random.Random, kind: str) -> str | None:
    """A cell that `publish` sends, but that silver refuses, because the type cannot hold it.

    None if the type has no such cell: every text that `publish` takes for it is a value of it.
    """
    if decimal := DECIMAL.fullmatch(kind):
        return "9" * (int(decimal[1]) - int(decimal[2]) + 1)
    offset = rng.randrange(1000)
    return {
        "int": str(2**31 + offset),
        "long": str(2**63 + offset),
        "float": f"1e{39 + offset}",
        "double": f"1e{400 + offset}",
        "timestamp": "2025-01-01T12:00:00+23:00",  # no zone is so far from UTC
        "timestamp_ms": str(10**18 + offset),  # as if in nanoseconds
    }.get(kind)
