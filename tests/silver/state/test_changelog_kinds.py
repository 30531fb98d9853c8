"""Tests changelogs in envelopes: their order, their truncations and invalid changes."""

import itertools
import json
import random
from pathlib import Path
from typing import Any

import pytest
from model import Message, Position
from pyspark.sql import SparkSession
from silver_lake import SilverLake
from topic import declared

ENVELOPES = """
[topics.accounts]
kind = "changelog"
key = ["id"]
envelope = "debezium"
sequence = ["lsn"]
[topics.accounts.fields]
id = "long"
owner = "string"
balance = "decimal(38,18)"
lsn = { type = "long", path = "source.lsn" }
"""


def envelope(entry: int, op: str, lsn: int | None, **row: Any) -> Message:
    before, after = (row, None) if op == "d" else (None, row)
    if op == "t":
        before = after = None
    fields = {"op": op, "before": before, "after": after, "source": {"lsn": lsn}}
    payload = json.dumps(fields).encode()
    return Message("accounts", Position(1, entry, 0, 0), None, payload)


@pytest.mark.parametrize("cuts", [[2, 5], pytest.param([1, 2, 3, 4, 5], marks=pytest.mark.nightly)])
def test_debezium_envelopes_may_arrive_in_any_order_and_split(
    spark: SparkSession, tmp_path: Path, cuts: list[int]
) -> None:
    """The truncation at 30 deletes older rows, even if they arrive later or repeatedly."""
    lake = SilverLake(spark, tmp_path, declared(tmp_path, ENVELOPES))
    messages = [
        envelope(1, "c", 10, id=1, owner="ada", balance=1),
        envelope(2, "t", 30),
        envelope(3, "u", 40, id=2, owner="bob", balance=2),
        envelope(4, "r", 20, id=3, owner="old", balance=3),
        envelope(5, "d", 35, id=4),
    ]
    random.Random(len(cuts)).shuffle(messages)
    for begin, end in itertools.pairwise([0, *cuts]):
        lake.put(messages[begin:end])
        lake.refine()
    rows = lake.rows("accounts_state", "NOT is_deleted")
    assert [(row["id"], row["owner"], row["lsn"]) for row in rows] == [(2, "bob", 40)]
    assert lake.rows("quarantine") == []


def test_numbers_in_an_envelope_keep_their_digits_and_invalid_changes_are_quarantined(
    spark: SparkSession, tmp_path: Path
) -> None:
    lake = SilverLake(spark, tmp_path, declared(tmp_path, ENVELOPES))
    digits = "12345678901234567.123456789012345678"
    exact = b'{"op":"c","after":{"id":1,"owner":"a","balance":%s},"source":{"lsn":1}}'
    bad = [
        b'{"op":"x","after":{"id":1},"source":{"lsn":2}}',
        b'{"after":{"id":1},"source":{"lsn":2}}',
        b'{"op":"u","after":null,"source":{"lsn":2}}',
        b'{"op":"u","after":{"id":1,"owner":"a","balance":1},"source":{}}',
        b'{"op":"u","after":{"owner":"a","balance":1},"source":{"lsn":9}}',
        b'{"op":"u","after":{"id":1,"owner":"a","balance":1},"source":{"lsn":"x"}}',
        b"[1]",
    ]
    payloads = [exact % digits.encode(), *bad]
    lake.put(
        Message("accounts", Position(1, n, 0, 0), None, payload)
        for n, payload in enumerate(payloads)
    )
    lake.refine()
    [row] = lake.rows("accounts_state")
    assert str(row["balance"]) == digits
    reasons = [row["reason"] for row in lake.refused()]
    assert reasons == [
        "the envelope has an unknown op: x",
        "the envelope has no op",
        "the envelope has no row in 'after'",
        "field 'lsn' is missing",
        "field 'id' is missing",
        "field 'lsn' is not of type long",
        "payload is not a JSON object",
    ]


def test_the_null_value_that_follows_a_delete_changes_nothing(
    spark: SparkSession, tmp_path: Path
) -> None:
    lake = SilverLake(spark, tmp_path, declared(tmp_path, ENVELOPES))
    null = [Message("accounts", Position(1, 9, 0, 0), json.dumps({"id": n}), None) for n in (1, 2)]
    null[1] = null[1]._replace(position=Position(1, 10, 0, 0))
    lake.put([envelope(1, "d", 5, id=1), envelope(2, "c", 6, id=2, owner="a", balance=0), *null])
    lake.refine()
    rows = {row["id"]: row["is_deleted"] for row in lake.rows("accounts_state")}
    assert rows == {1: True, 2: False}, "a tombstone without a sequence is older than all rows"
