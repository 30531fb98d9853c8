"""Tests that the latest message by order time wins in silver, in whichever batch it arrives."""

import datetime as dt
import json
import random
from pathlib import Path
from typing import Any

from model import Message, Position
from pyspark.sql import SparkSession
from silver_lake import SilverLake
from topic import declared

CASES = range(150)
TIMES = [None, *(dt.datetime(2026, 1, 1, 0, n, tzinfo=dt.timezone.utc) for n in range(3))]
TOPICS = """
[topics.things]
kind = "changelog"
key = ["case", "id"]
history = true
[topics.things.fields]
case = "int"
id = "int"
value = "int"

[topics.parts]
kind = "changelog"
key = ["case", "id"]
updates = "partial"
[topics.parts.fields]
case = "int"
id = "int"
value = { type = "int", required = false }
other = { type = "int", required = false }

[topics.whole]
kind = "changelog"
key = ["case", "id"]
truncate = { field = "case", equals = -1 }
[topics.whole.fields]
case = "int"
id = "int"
value = "int"

[topics.facts]
kind = "events"
key = ["case", "id"]
[topics.facts.fields]
case = "int"
id = "int"
value = "int"
"""

Case = tuple[int, int]


class Sent:
    """The same messages for every topic: keys, contents, and positions in random order."""

    def __init__(self, seed: int) -> None:
        rng = random.Random(seed)
        self.messages: list[tuple[Position, Case, dict[str, int] | None]] = []
        numbers = iter(rng.sample(range(10_000), 10_000))
        for case in CASES:
            for value in range(rng.randint(2, 8)):
                ledger, partition = rng.randint(1, 3), rng.randint(0, 2)
                place = Position(ledger, next(numbers), 0, partition, rng.choice(TIMES))
                names = rng.sample(["value", "other"], rng.randint(1, 2))
                fields = None if rng.random() < 0.2 else dict.fromkeys(names, value)
                self.messages.append((place, (case, rng.randint(0, 1)), fields))
        rng.shuffle(self.messages)
        self.truncation = Position(2, 10_001, 0, 0, TIMES[1])

    def of(self, topic: str) -> list[Message]:
        found = []
        for place, (case, id_), fields in self.messages:
            values = fields or {}
            if topic in ("things", "whole", "facts"):  # all fields must be there
                values = {"value": sum(values.values())}
            if topic == "facts" or fields is not None:
                payload = json.dumps({"case": case, "id": id_, **values}).encode()
            else:
                payload = b""
            found.append(Message(topic, place, f"{case}|{id_}", payload))
        if topic == "whole":
            payload = json.dumps({"case": -1, "id": -1, "value": 0}).encode()
            found.insert(len(found) // 2, Message(topic, self.truncation, None, payload))
        return found

    def latest(self, after: Position | None = None) -> dict[Case, tuple[Position, int | None]]:
        """Return by definition the value of each key's last message, None for a delete."""
        found = {}
        for place, key, fields in sorted(self.messages, key=lambda each: each[0].order):
            if after is None or place.order > after.order:
                found[key] = place, None if fields is None else sum(fields.values())
        return found

    def registers(self) -> dict[Case, dict[str, int | None]]:
        """Return by definition the last value of each field; a delete clears all fields."""
        found: dict[Case, dict[str, int | None]] = {}
        for _, key, fields in sorted(self.messages, key=lambda each: each[0].order):
            if fields is None:
                found[key] = {"value": None, "other": None}
            else:
                found.setdefault(key, {"value": None, "other": None}).update(fields)
        return found


def test_the_last_message_by_order_time_and_position_wins_in_any_batches(
    spark: SparkSession, tmp_path: Path
) -> None:
    lake = SilverLake(spark, tmp_path / "lake", declared(tmp_path, TOPICS))
    sent, rng = Sent(11), random.Random(12)
    parts = {name: sent.of(name) for name in lake.topics.topics}
    cuts = {name: rng.randint(1, len(each) - 1) for name, each in parts.items()}
    for is_first in (True, False):
        for name, each in parts.items():
            lake.put(each[: cuts[name]] if is_first else each[cuts[name] :])
        lake.refine()

    def rows(table: str) -> dict[Case, Any]:
        found = lake.table(table).where("case >= 0").collect()
        return {(row["case"], row["id"]): row for row in found}

    latest, facts = sent.latest(), rows("enriched_facts")
    values = {
        key: (each["is_deleted"], each["value"]) for key, each in rows("things_state").items()
    }
    assert values == {key: (value is None, value) for key, (_, value) in latest.items()}
    open_versions = lake.rows("things_history", "valid_to IS NULL")
    assert {(row["case"], row["id"], row["value"]) for row in open_versions} == {
        (*key, value) for key, (_, value) in latest.items()
    }
    assert {key: row["value"] for key, row in facts.items()} == {
        key: value or 0 for key, (_, value) in latest.items()
    }
    left = {k: v for k, (_, v) in sent.latest(after=sent.truncation).items()}
    assert {key: row["value"] for key, row in rows("whole_state").items()} == left
    assert {
        key: {"value": row["value"], "other": row["other"]}
        for key, row in rows("parts_state").items()
    } == sent.registers()
