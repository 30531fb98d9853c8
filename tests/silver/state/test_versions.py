"""Tests histories whose versions are made from several messages, in any order of arrival.

One lake has random changelogs of all kinds. Their keys are in many cases of few messages each, so
that short histories of all forms occur.
"""

import datetime as dt
import json
import os
import random
from pathlib import Path
from typing import Any

import pytest
from model import Message, Position
from pyspark.sql import SparkSession
from silver_lake import SilverLake
from topic import declared
from versions_model import Change, Valid, folded, last_change, of_snapshots, versions

from lake.streams.checkpoint import newest_file
from silver.refine import QUERY

ROUNDS = int(os.environ.get("TEST_ROUNDS", "1"))
CHANGELOG = """
[topics.{name}]
kind = "changelog"
key = ["id"]
sequence = ["seq"]
event_time = "at"
{options}
[topics.{name}.fields]
id = "string"
seq = "int"
at = "timestamp_ms"
op = {{ type = "string", required = false }}
town = {{ type = "string", required = false }}
phone = {{ type = "string", required = false }}
tags = {{ type = "map<string, string>", required = false }}
"""
DELETE = 'delete = { field = "op", equals = "d" }'
OPTIONS = {
    "tracked": f'{DELETE}\nhistory = {{ columns = ["town"] }}\n'
    'truncate = { field = "op", equals = "t" }',
    "folded": f'{DELETE}\nhistory = true\nupdates = "partial"',
    "filled": f'{DELETE}\nhistory = {{ columns = ["town"] }}\n'
    'ignore_null_updates = { columns = ["town", "tags"] }',
    "listed": 'delete = "never"\nhistory = { except = ["phone", "tags"] }\n'
    'snapshot_end = { field = "op", equals = "end" }',
}
SALES = """
[topics.sales]
kind = "events"
key = ["id"]
event_time = "at"
[topics.sales.fields]
id = "int"
buyer = "string"
at = "timestamp_ms"
[topics.sales.lookups]
"""
LOOKED_UP = ("tracked", "folded", "listed")
TOPICS = "".join(CHANGELOG.format(name=n, options=x) for n, x in OPTIONS.items()) + SALES
TOPICS += "".join(
    f'as_{n} = {{ topic = "{n}", on = "buyer", mode = "as_of" }}\n' for n in LOOKED_UP
)
INSTANTS = range(8)
CASES = 25
NOTHING = dict.fromkeys(("town", "phone", "tags"))
ENDS = {"tracked": "t", "listed": "end"}


def histories(name: str, rng: random.Random) -> list[Change]:
    """Random messages of a topic. Sequences are coarse, and need not follow the event times."""
    found = []
    for entry in range(CASES * 5):
        key = f"{rng.randrange(CASES)}"
        order, at = (rng.randrange(4), entry), rng.choice(INSTANTS)
        fields: dict[str, Any] | None = {
            "town": rng.choice(["Rome", "Oslo", None]),
            "phone": rng.choice(["1", "2", None]),
            "tags": rng.choice([{"a": "1"}, None]),
        }
        if name == "folded":
            fields = {n: v for n, v in (fields or {}).items() if rng.random() < 0.5}
        if name != "listed" and rng.random() < 0.2:
            fields = None
        found.append(Change(key, order, at, fields))
    if name in ENDS:
        for number, at in enumerate(rng.sample(INSTANTS, 2)):
            found.append(Change(None, (number + 1, len(found)), at, None))
    return found


def sent(name: str, change: Change) -> Message:
    sequence, entry = change.order
    row = {"id": change.key, "seq": sequence, "at": change.at, **(change.fields or {})}
    if change.key is None:
        row["op"] = ENDS[name]
    elif change.fields is None:
        row["op"] = "d"
    return Message(name, Position(1, entry, 0, 0), None, json.dumps(row).encode())


def expected(name: str, changes: list[Change]) -> dict[str, list[Valid]]:
    """Return the versions of each key."""
    found = {}
    for key in {each.key for each in changes if each.key}:
        mine = [each for each in changes if each.key in (key, None)]
        if name in ("folded", "filled"):
            if name == "filled":  # a null town is no town, and a missing phone is none
                mine = [_without_nulls(each) for each in mine]
            rows = versions(
                mine,
                INSTANTS,
                folded,
                lambda one, other: (
                    one[0] == other[0] if name == "folded" else _town(one[1]) == _town(other[1])
                ),
            )
            found[key] = [x._replace(row=x.row[1]) for x in rows]
        else:
            rows = versions(
                mine,
                INSTANTS,
                lambda each, at: last_change(each, at, of_snapshots=name == "listed"),
                lambda one, other: _town(one.fields) == _town(other.fields),
            )
            found[key] = [x._replace(row=x.row.fields) for x in rows]
    return {
        key: [x._replace(row=x.row if x.row is None else NOTHING | x.row) for x in rows]
        for key, rows in found.items()
        if rows
    }


def _without_nulls(change: Change) -> Change:
    if change.fields is None:
        return change
    kept = {n: v for n, v in change.fields.items() if v is not None or n == "phone"}
    return change._replace(fields=kept)


def _town(fields: dict[str, Any] | None) -> object:
    return "deleted" if fields is None else (fields.get("town"),)


def instant(value: dt.datetime | None) -> int | None:
    return None if value is None else round(value.timestamp() * 1000)


def values(row: dict[str, Any]) -> dict[str, Any] | None:
    if row["is_deleted"]:
        return None
    found = {name: row[name] for name in NOTHING}
    return found | {"tags": None if row["tags"] is None else dict(row["tags"])}


@pytest.mark.timeout(300 + 180 * ROUNDS)
@pytest.mark.parametrize("seed", range(ROUNDS))
def test_versions_are_those_of_the_definition_in_any_order_of_arrival(
    spark: SparkSession, tmp_path: Path, seed: int
) -> None:
    """Invariants 3 and 4: in any order, after a repeated batch, and for events that came before."""
    rng = random.Random(seed)
    lake = SilverLake(spark, tmp_path / "lake", declared(tmp_path, TOPICS))
    changes = {name: histories(name, rng) for name in OPTIONS}
    messages = [sent(name, each) for name, found in changes.items() for each in found]
    sales = {n: (str(rng.randrange(CASES)), rng.choice(INSTANTS)) for n in range(CASES * 4)}
    messages += [
        Message("sales", Position(1, n, 0, 0), str(n), json.dumps(row).encode())
        for n, (buyer, at) in sales.items()
        for row in [{"id": n, "buyer": buyer, "at": at}]
    ]
    rng.shuffle(messages)
    for batch in range(2):
        lake.put(messages[batch::2])
        lake.refine()
    commit = newest_file(Path(lake.settings.checkpoint_path(QUERY)) / "commits")
    assert commit is not None
    commit.unlink()  # as a kill leaves it: the batch is repeated
    lake.refine()
    assert lake.rows("quarantine") == []
    right = {name: expected(name, found) for name, found in changes.items()}
    for name in OPTIONS:
        found: dict[str, list[Valid]] = {}
        rows = lake.table(f"{name}_history").orderBy("valid_from").toArrow().to_pylist()
        for row in rows:
            begin = instant(row["valid_from"])
            assert begin is not None
            version = Valid(begin, instant(row["valid_to"]), values(row))
            found.setdefault(row["id"], []).append(version)
        assert found == right[name], name
    for row in lake.table("enriched_sales").toArrow().to_pylist():
        buyer, at = sales[row["id"]]
        for name in LOOKED_UP:
            valid = [
                x for x in right[name].get(buyer, []) if x.begin <= at and (x.end or at + 1) > at
            ]
            looked_up = row[f"as_{name}"]
            assert (looked_up is None) == (not valid), (name, row["id"])
            if valid:
                assert values(looked_up) == valid[0].row, (name, row["id"])
    listed = of_snapshots(changes["listed"])
    state = lake.table("listed_state").where("mark IS NULL").toArrow().to_pylist()
    assert {row["id"]: values(row) for row in state} == {k: x.fields for k, x in listed.items()}
    assert any(len(each) > 2 for each in right["tracked"].values())
