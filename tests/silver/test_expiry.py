"""Tests that old messages and events are deleted, and nothing that silver still needs.

The oracle keeps all messages with their ages, and says in plain Python which are left.
"""

import datetime as dt
import json
import os
import random
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from messages import PEOPLE_AND_VISITS, json_message
from personal import SECRET
from pyspark.sql import SparkSession
from quiet_lake import QuietLake
from silver_lake import SilverLake
from topic import GOOD, declared

from bronze import expiry
from bronze.expiry import PUBLISHED, expire_messages, expired_messages, standing
from bronze.upkeep import DAY, DONE
from lake.settings.settings import load_settings
from lake.tables.lake import Lake
from lake.tables.spec import bronze_table
from lakehouse.erasure.run import forget
from lakehouse.operate.plan import silver_steps
from silver.maintenance import Maintenance
from silver.quarantine import Selection, discard
from silver.rebuild import rebuild

KEPT = "keep = '30 days'\nkey ="
TOPICS = PEOPLE_AND_VISITS.replace("key =", KEPT).format(people='name = "string"', visits="")
VIEW = """
[views.visited]
description = "How often each person was visited. Grain: one person with visits"
key = ["person"]
columns = { person = "int", visits = "bigint" }
sql = "SELECT person, count(*) AS visits FROM enriched_visits GROUP BY person"
"""
DAYS_AGO = (1, 9, 26, 34, 60)  # none near the 30 days, as the day may change during a test
NOW = dt.datetime.now(dt.timezone.utc)


class Expected:
    """What is in the lake, given what was sent, read and deleted."""

    def __init__(self) -> None:
        self.age: dict[tuple[str, int], int] = {}  # of all messages, in days, by topic and entry
        self.bronze: set[tuple[str, int]] = set()
        self.sent: dict[tuple[str, int], dict[str, Any]] = {}
        self.unread: list[tuple[str, int]] = []
        self.people: dict[int, int] = {}  # id: entry
        self.visits: dict[int, int] = {}
        self.refused: set[tuple[str, int]] = set()

    def send(self, topic: str, entry: int, days: int, fields: dict[str, Any]) -> None:
        self.age[topic, entry], self.sent[topic, entry] = days, fields
        self.bronze.add((topic, entry))
        self.unread.append((topic, entry))

    def incomplete(self, visit: int) -> bool:
        person = self.sent["visits", self.visits[visit]]["person"]
        return person not in self.people

    def left(self) -> dict[int, int]:
        """The visits that are not too old, or miss their person."""
        return {
            visit: entry
            for visit, entry in self.visits.items()
            if self.age["visits", entry] < 30 or self.incomplete(visit)
        }

    def refine(self) -> None:
        """Delete old events that were complete before the batch, and then apply the batch."""
        self.visits = self.left()
        for topic, entry in self.unread:
            fields = self.sent[topic, entry]
            rows = self.people if topic == "people" else self.visits
            if isinstance(fields["id"], int):
                rows[fields["id"]] = max(entry, rows.get(fields["id"], entry))
            else:
                self.refused.add((topic, entry))
        self.unread = []

    def expire(self) -> None:
        """Delete old messages that silver has read and does not need."""
        needed = {("people", entry) for entry in self.people.values()}
        needed |= {("visits", e) for v, e in self.visits.items() if self.incomplete(v)}
        needed |= {*self.unread} | self.refused
        self.bronze = {each for each in self.bronze if self.age[each] < 30 or each in needed}

    def counts(self) -> dict[int, int]:
        return Counter(self.sent["visits", entry]["person"] for entry in self.visits.values())


Sent = tuple[int, str, int, dict[str, Any]]  # days ago, topic, entry, fields


def batches(rng: random.Random, count: int) -> Iterator[list[Sent]]:
    """Yield messages, one in eight without a valid id. Those of a key are sent in their order."""
    last: dict[tuple[str, Any], int] = {}
    for number in range(count):
        found = []
        for n in range(16):
            entry = 100 * number + n
            topic = rng.choice(["people", "visits", "visits"])
            key = rng.randrange(6) if topic == "people" else rng.randrange(40)
            fields: dict[str, Any] = {"id": "none" if rng.random() < 1 / 8 else key}
            fields |= {"name": f"n{entry}"} if topic == "people" else {"person": rng.randrange(8)}
            place = topic, fields["id"]
            days = last[place] = rng.choice([d for d in DAYS_AGO if d <= last.get(place, 99)])
            found.append((days, topic, entry, fields))
        yield found


def check(lake: SilverLake, wanted: Expected) -> None:
    for topic in ("people", "visits"):
        found = Counter(row["entry"] for row in lake.rows(topic, layer="bronze"))
        assert found == Counter(entry for of, entry in wanted.bronze if of == topic), topic
    state = {row["id"]: row["position"].entry for row in lake.rows("people_state")}
    assert state == wanted.people
    visits = lake.rows("enriched_visits")
    assert {row["id"]: row["position"].entry for row in visits} == wanted.visits
    assert {row["id"] for row in visits if row["missing_lookups"]} == {
        visit for visit in wanted.visits if wanted.incomplete(visit)
    }
    view = {r["person"]: r["visits"] for r in lake.table("visited").collect()}
    assert view == wanted.counts()


def a_day_passes(lake: SilverLake) -> None:
    done = Path(lake.settings.checkpoint_path("silver")) / DONE
    if done.exists():
        os.utime(done, (time.time() - 2 * DAY,) * 2)


@pytest.mark.parametrize(
    "seed", [1, *(pytest.param(n, marks=pytest.mark.nightly) for n in range(2, 6))]
)
def test_what_is_old_and_not_needed_is_deleted(
    seed: int, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bronze is cleaned up before or after silver has read a batch, in many small steps."""
    rng = random.Random(seed)
    monkeypatch.setattr(expiry, "MOST_ROWS", 3)
    monkeypatch.setattr(Maintenance, "after", lambda self, *_: self._daily.done())  # no VACUUM
    lake = SilverLake(spark, tmp_path / "lake", declared(tmp_path, TOPICS + VIEW))
    topics = lake.topics.topics
    wanted = Expected()

    def clean() -> None:
        for topic in topics.values():
            expire_messages(lake.lake, topic, NOW)
            assert expire_messages(lake.lake, topic, NOW) == 0, "a repetition finds something"
        wanted.expire()

    for number, sent in enumerate(batches(rng, 3)):
        for days, topic, entry, fields in sent:
            wanted.send(topic, entry, days, fields)
        for days in DAYS_AGO:
            of_day = [json_message(topic, n, **f) for age, topic, n, f in sent if age == days]
            lake.put(of_day, NOW - dt.timedelta(days=days))
        if number == 1:  # nothing is deleted, because the new messages are as old as the others
            assert [expire_messages(lake.lake, topic, NOW) for topic in topics.values()] == [0, 0]
        a_day_passes(lake)
        lake.refine()
        wanted.refine()
        if number:
            clean()
        check(lake, wanted)
    left = standing(lake.lake, topics["visits"], NOW)
    assert left is not None
    old = [each for each in wanted.bronze if each[0] == "visits" and wanted.age[each] > 30]
    assert left.old == left.needed == len(old) > 0

    gone = len(wanted.visits) - len(wanted.left())
    assert {step.table: step.what for step in silver_steps(lake.lake)} == {
        "silver.enriched_visits": f"{gone} events are deleted",
        "silver.visited": "follows",
    }
    for topic in topics:
        log = lake.lake.table(bronze_table(topic)).arrow
        landed = sum(1 for of, _ in wanted.sent if of == topic)
        assert log.count_rows() + expired_messages(log) == landed
    rebuild(spark, lake.lake)
    wanted.refine()  # without a batch, but it deletes what is old
    check(lake, wanted)
    discard(spark, lake.lake, Selection())
    wanted.refused = set()
    clean()
    check(lake, wanted)


@pytest.mark.nightly
def test_a_person_is_forgotten_whose_old_visits_are_deleted(
    spark: SparkSession, tmp_path: Path
) -> None:
    """What `keep` has deleted does not come back, and what is left is of a pseudonym."""
    personal = 'name = { type = "string", personal = "keep" }'
    text = PEOPLE_AND_VISITS.replace("key =", KEPT).format(people=personal, visits="") + VIEW
    lake = SilverLake(spark, tmp_path / "lake", declared(tmp_path, text))
    (tmp_path / "secret").touch(mode=0o600)
    (tmp_path / "secret").write_text(SECRET)
    lake.settings = lake.settings.model_copy(update={"pseudonym_secret_file": tmp_path / "secret"})
    for days, first in ((60, 0), (1, 10)):
        sent = [json_message("people", first + id, id=id, name=f"name{id}") for id in (1, 2)]
        sent += [json_message("visits", first + n, id=first + n, person=n) for n in (1, 2)]
        lake.put(sent, NOW - dt.timedelta(days=days))
        a_day_passes(lake)
        lake.refine()
    lake.put([json_message("visits", 20, id=20, person=2)], NOW)
    a_day_passes(lake)
    lake.refine()  # which deletes the old visits
    for topic in lake.topics.topics.values():
        expire_messages(lake.lake, topic, NOW)
    assert {row["id"]: row["person"] for row in lake.rows("enriched_visits")} == {
        11: 1,
        12: 2,
        20: 2,
    }
    assert {row["entry"] for row in lake.rows("visits", layer="bronze")} == {11, 12, 20}

    proof = forget(spark, lake.lake, "1", lambda *_: True, reason="asked for")
    assert proof is not None
    assert [part.where for part in proof.search() if part.found] == []

    def is_right() -> None:
        visits = {row["id"]: row["person"] for row in lake.rows("enriched_visits")}
        someone = visits.pop(11)
        assert someone not in (1, 2)
        assert visits == {12: 2, 20: 2}
        view = {r["person"]: r["visits"] for r in lake.table("visited").collect()}
        assert view == {2: 2, someone: 1}
        assert {row["entry"] for row in lake.rows("visits", layer="bronze")} == {11, 12, 20}

    is_right()
    rebuild(spark, lake.lake)
    is_right()


def test_messages_that_are_not_read_hold_back_those_of_their_age_only(tmp_path: Path) -> None:
    """Silver's stream passes a deletion or a compaction only with the next message it reads."""
    text = GOOD.replace('kind = "events"', 'kind = "events"\nkeep = "9 days"')
    quiet = QuietLake(load_settings(home=tmp_path))
    lake = quiet.lake = Lake(quiet.settings, declared(tmp_path, text))
    orders, start = lake.topics.topics["orders"], dt.datetime(2026, 3, 1, tzinfo=dt.timezone.utc)
    table = lake.table(bronze_table("orders"))

    def days_left(at: int) -> list[int]:
        expire_messages(lake, orders, start + dt.timedelta(days=at))
        return sorted((row["publish_time"] - start).days for row in table.arrow.rows([PUBLISHED]))

    for day in range(5):
        quiet.land("orders", [str(day).encode()], start + dt.timedelta(days=day))
        table.arrow.set_configuration("test", str(day))
    assert days_left(99) == [0, 1, 2, 3, 4], "silver has not run"
    quiet.refuse()
    quiet.enrich("orders", [], start)
    quiet.run("silver", 1)
    offset = {"reservoirId": table.arrow.id, "isStartingVersion": False, "index": -1}

    def read_until(version: int, **other: object) -> None:
        stored = json.dumps({**offset, "reservoirVersion": version, **other})
        file = Path(lake.settings.checkpoint_path("silver")) / "offsets" / "1"
        file.write_text(f"v1\n{{}}\norders:{stored}")

    read_until(table.newest_version() + 1, isStartingVersion=True)
    assert days_left(99) == [0, 1, 2, 3, 4], "silver is still reading the first version"
    read_until(table.newest_version() + 1)
    assert days_left(11) == [2, 3, 4]
    table.arrow.compact(1 << 20)
    assert days_left(12) == [3, 4]
    quiet.land("orders", [b"late"], start + dt.timedelta(days=4))
    assert days_left(99) == [4, 4]
    table.arrow.compact(1 << 20)
    assert days_left(99) == [4, 4]
    read_until(table.newest_version() + 1)
    assert days_left(99) == []
