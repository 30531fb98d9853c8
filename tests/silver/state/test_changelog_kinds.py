"""Tests the options of changelogs: envelopes, truncation, partial updates, merged keys."""

import itertools
import json
import random
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from model import Message, Position
from partial_model import FIELDS, Folded, Keyed, PartialChange, current
from pyspark.sql import Row, SparkSession
from silver_lake import SilverLake
from topic import declared

from silver.state.merge_chains import survivors

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

PARTIAL = """
[topics.people]
kind = "changelog"
key = ["id"]
updates = "partial"
envelope = "debezium"
sequence = ["version"]
[topics.people.fields]
id = "int"
version = { type = "int", path = "source.version" }
source_db = { type = "string", required = false, path = "source.db" }
name = { type = "string", required = false }
town = { type = "string", required = false }
"""


def envelope(entry: int, op: str, lsn: int | None, **row: Any) -> Message:
    before, after = (row, None) if op == "d" else (None, row)
    if op == "t":
        before = after = None
    fields = {"op": op, "before": before, "after": after, "source": {"lsn": lsn}}
    payload = json.dumps(fields).encode()
    return Message("accounts", Position(1, entry, 0, 0), None, payload)


@pytest.mark.parametrize("cuts", [[5], [1, 2, 3, 4, 5]])
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


values = st.one_of(st.none(), st.sampled_from("abc"))
partial_changes = st.builds(
    PartialChange,
    order=st.tuples(st.integers(0, 5), st.integers(0, 50)),
    fields=st.one_of(st.none(), st.dictionaries(st.sampled_from(["name", "town"]), values)),
)
messages = st.tuples(st.sampled_from([1, 2, 1, 2, None]), partial_changes)


@settings(max_examples=1000, deadline=None)
@given(
    history=st.lists(messages, max_size=10, unique_by=lambda message: message[1].order),
    chance=st.randoms(),
)
def test_partial_updates_fold_to_the_same_rows_in_any_order_split_and_replay(
    history: list[Keyed], chance: random.Random
) -> None:
    """The model of silver's last-writer-wins fields, with truncations among the messages."""
    shuffled = chance.sample(history, len(history))
    cuts = sorted(chance.randrange(len(history) + 1) for _ in range(3))
    batches = [shuffled[i:j] for i, j in itertools.pairwise([0, *cuts, len(history)])]
    folded = Folded()
    for batch in (*batches, *chance.choices(batches, k=3)):
        folded.batch(batch)
    assert folded.rows == current(history)


def test_a_real_table_with_partial_updates_matches_the_model(
    spark: SparkSession, tmp_path: Path
) -> None:
    lake = SilverLake(spark, tmp_path, declared(tmp_path, PARTIAL))
    rng, history = random.Random(3), list[Keyed]()
    for entry in range(60):
        fields = {n: rng.choice([None, f"{n}{entry}"]) for n in FIELDS if rng.random() < 0.4}
        if fields.get("source_db", "") is None:
            del fields["source_db"]  # null outside the row means nothing
        gone = rng.random() < 0.25
        # The sequence is coarse, so equal sequences occur before and after the truncations.
        change = PartialChange((rng.randrange(6), entry), None if gone else fields)
        history.append((rng.randrange(5), change))
    history += [(None, PartialChange((sequence, 60 + sequence), None)) for sequence in (1, 2)]
    rng.shuffle(history)
    last: Keyed = (None, PartialChange((3, 63), None))
    for batch in (history[:25], history[20:], [last, *rng.sample(history, 5)]):
        lake.put(sent(*each) for each in batch)
        lake.refine()
    assert lake.rows("quarantine") == []
    rows = lake.rows("people_state", "mark IS NULL")
    expected = current([*history, last])
    assert {row["id"] for row in rows} == expected.keys()
    assert any(not row["is_deleted"] for row in rows)
    for row in rows:
        registers = expected[row["id"]]
        gone_at = registers["_deleted"]
        assert row["is_deleted"] is gone_at.is_later_than(registers["_upserted"])
        for name in FIELDS:
            assert order_of(row["orders"][name]) == registers[name].order, (row["id"], name)
            value = None if gone_at.is_later_than(registers[name]) else registers[name].value
            assert row[name] == value, (row["id"], name)


def sent(key: int | None, change: PartialChange) -> Message:
    version, entry = change.order
    fields = dict(change.fields or {})
    source: dict[str, Any] = {"version": version}
    if (db := fields.pop("source_db", None)) is not None:
        source["db"] = db
    row = {"id": key, **fields}
    sides: dict[str, Any] = {"op": "u", "after": row}
    if change.fields is None:
        sides = {"op": "t"} if key is None else {"op": "d", "before": {"id": key}}
    payload = json.dumps({**sides, "source": source}).encode()
    return Message("people", Position(1, entry, 0, 0), None, payload)


def order_of(struct: Row | None) -> tuple[int, int] | None:
    return None if struct is None else (struct["version"], struct["position"].entry)


@pytest.mark.parametrize(
    ("merges", "ends"),
    [
        ({1: 2, 2: 3, 4: 3}, {1: 3, 2: 3, 4: 3}),
        ({1: 2, 2: 1, 3: 1, 5: 6}, {1: None, 2: None, 3: None, 5: 6}),
        ({7: 7}, {7: None}),
        ({}, {}),
    ],
)
def test_merge_chains_end_at_the_canonical_key_and_cycles_at_none(
    merges: dict[int, int], ends: dict[int, int | None]
) -> None:
    assert survivors(merges) == ends
