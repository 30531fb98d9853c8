"""Tests that partial updates give the same rows in any order of arrival."""

import itertools
import json
import random
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from model import Message, Position
from partial_model import FIELDS, Folded, Keyed, PartialChange, current
from pyspark.sql import Row, SparkSession
from silver_lake import SilverLake
from topic import declared

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

values = st.one_of(st.none(), st.sampled_from("abc"))
partial_changes = st.builds(
    PartialChange,
    order=st.tuples(st.integers(0, 5), st.integers(0, 50)),
    fields=st.one_of(st.none(), st.dictionaries(st.sampled_from(["name", "town"]), values)),
)
messages = st.tuples(st.sampled_from([1, 2, 1, 2, None]), partial_changes)


@settings(max_examples=200, deadline=None)
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
