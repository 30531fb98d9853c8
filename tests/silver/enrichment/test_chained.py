"""Tests lookups by several fields, and through other lookups, in any order of arrival."""

import json
import random
from pathlib import Path
from typing import Any

from chained_model import Version, current, key_in, valid
from model import Message, Position
from pyspark.sql import SparkSession
from silver_lake import SilverLake
from topic import declared

TOPICS = """
[topics.districts]
kind = "changelog"
key = ["country", "code"]
history = true
event_time = "at"
[topics.districts.fields]
country = "string"
code = "int"
at = "timestamp_ms"
mayor = { type = "string", required = false }

[topics.banks]
kind = "changelog"
key = ["id"]
fields = { id = "string", city = "string" }

[topics.accounts]
kind = "changelog"
key = ["id"]
history = true
delete = { field = "op", equals = "d" }
event_time = "at"
[topics.accounts.fields]
id = "int"
at = "timestamp_ms"
op = { type = "string", required = false }
homeCountry = { type = "string", required = false }
districtCode = { type = "int", required = false }
bank = { type = "string", required = false }

[topics.payments]
kind = "events"
key = ["id"]
event_time = "at"
[topics.payments.fields]
id = "int"
account = "int"
at = "timestamp_ms"
[topics.payments.lookups]
district = { topic = "districts", on = ["then.homeCountry", "then.districtCode"], mode = "as_of" }
then = { topic = "accounts", on = "account", mode = "as_of" }
now = { topic = "accounts", on = "account" }
place = { topic = "districts", on = ["now.homeCountry", "now.districtCode"] }

[topics.visits]
kind = "events"
key = ["id"]
[topics.visits.fields]
id = "int"
account = "int"
country = "string"
code = "int"
[topics.visits.lookups]
bank = { topic = "banks", on = "owner.bank" }
owner = { topic = "accounts", on = "account" }

[topics.tours]
kind = "events"
key = ["id"]
[topics.tours.fields]
id = "int"
country = "string"
code = "int"
[topics.tours.lookups]
goal = { topic = "districts", on = ["country", "code"] }
"""
INSTANTS = range(8)
COUNTRIES, CODES, BANKS, ACCOUNTS = "CH", range(3), "xyz", range(6)
HOME = ("homeCountry", "districtCode")
BATCHES = 3


def changelogs(rng: random.Random) -> dict[str, list[Version]]:
    """Random versions. Some accounts are deleted."""
    found: dict[str, list[Version]] = {"districts": [], "accounts": [], "banks": []}
    for position in range(40):
        at, gone = rng.choice(INSTANTS), rng.random() < 0.15
        place = (rng.choice(COUNTRIES), rng.choice(CODES))
        mayor = {"mayor": f"m{position}"}
        found["districts"].append(Version(place, position, at, mayor))
        row = dict(zip(HOME, (rng.choice(COUNTRIES), rng.choice(CODES)), strict=True))
        row["bank"] = rng.choice(BANKS)
        key = (rng.choice(ACCOUNTS),)
        found["accounts"].append(Version(key, position, at, None if gone else row))
    for position, name in enumerate(BANKS[:2]):
        found["banks"].append(Version((name,), position, 0, {"city": name}))
    return found


def sent(topic: str, version: Version, keys: list[str]) -> Message:
    """Return the message."""
    key = "|".join(map(str, version.key))
    row = dict(zip(keys, version.key, strict=True)) | {"at": version.at, **(version.row or {})}
    if version.row is None:
        row["op"] = "d"
    payload = json.dumps(row).encode()
    return Message(topic, Position(1, version.position, 0, 0), key, payload)


def test_lookups_through_others_are_those_of_the_definition(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Invariant 4: what arrives late at the far end completes or moves the rows of events."""
    rng = random.Random(5)
    lake = SilverLake(spark, tmp_path, declared(tmp_path, TOPICS))
    versions = changelogs(rng)
    keys = {name: lake.topics.topics[name].key for name in versions}
    messages: list[tuple[Message, Any]] = [
        (sent(name, each, keys[name]), each) for name, found in versions.items() for each in found
    ]
    payments, visits, tours = dict[int, Any](), dict[int, Any](), dict[int, Any]()
    for number in range(60):
        payment = {"id": number, "account": rng.choice(ACCOUNTS), "at": rng.choice(INSTANTS)}
        place = {"id": number, "country": rng.choice(COUNTRIES), "code": rng.choice(CODES)}
        visit = {**place, "account": payment["account"]}
        for topic, row in (("payments", payment), ("visits", visit), ("tours", place)):
            payload = json.dumps(row).encode()
            messages.append((Message(topic, Position(1, number, 0, 0), None, payload), row))
        payments[number], visits[number], tours[number] = payment, visit, place
    rng.shuffle(messages)
    known: dict[str, list[Version]] = {name: [] for name in versions}
    expected: dict[str, dict[int, dict[str, Version | None]]] = {
        name: {} for name in ("payments", "visits", "tours")
    }
    for batch in range(BATCHES):
        part = messages[batch::BATCHES]
        lake.put(message for message, _ in part)
        lake.refine()
        for message, content in part:
            if message.topic in known:
                known[message.topic].append(content)
            else:
                expected[message.topic][content["id"]] = {}
        for number, held in expected["payments"].items():
            account = (payments[number]["account"],)
            held["now"] = held.get("now") or current(known["accounts"], account)
            place = key_in(held["now"], HOME)
            held["place"] = held.get("place") or current(known["districts"], place)
        for number, held in expected["visits"].items():
            owner = current(known["accounts"], (visits[number]["account"],))
            held["owner"] = held.get("owner") or owner
            bank = key_in(held["owner"], ("bank",))
            held["bank"] = held.get("bank") or current(known["banks"], bank)
        for number, held in expected["tours"].items():
            goal = (tours[number]["country"], tours[number]["code"])
            held["goal"] = held.get("goal") or current(known["districts"], goal)
    for number, held in expected["payments"].items():
        account, at = (payments[number]["account"],), payments[number]["at"]
        held["then"] = valid(known["accounts"], account, at)
        held["district"] = valid(known["districts"], key_in(held["then"], HOME), at)
    assert lake.rows("quarantine") == []
    for topic, rows in expected.items():
        found_rows = {row["id"]: row for row in lake.rows(f"enriched_{topic}")}
        assert found_rows.keys() == rows.keys()
        for number, right in rows.items():
            found_row = found_rows[number]
            places = {name: found_row[f"{name}_position"] for name in right}
            assert {n: p and p.entry for n, p in places.items()} == {
                n: x and x.position for n, x in right.items()
            }, (topic, number)
            for name, version in right.items():
                assert (found_row[name] is None) == (version is None)
                if version and name in ("district", "place", "goal"):
                    assert found_row[name]["mayor"] == (version.row or {}).get("mayor")
            assert found_row["missing_lookups"] == [*right.values()].count(None)
    missing = [row for row in expected["visits"].values() if row["bank"] is None]
    assert missing
    assert any(row["bank"] for row in expected["visits"].values())
