"""Tests that materialized views hold what their queries give after changes of their sources."""

import datetime as dt
import json
import random
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from messages import json_message, message
from model import Message
from pyspark.sql import DataFrame, SparkSession
from silver_lake import SilverLake
from structlog.testing import capture_logs
from topic import declared

from lake.topics.topic_file import load_topics
from pulsar_spark.errors import LakehouseError
from silver.audit.snapshots import latest_snapshot
from silver.contract.tables import silver_tables
from silver.materialized import KeptView
from silver.quarantine import Selection, replay
from silver.refine import Refinery

PEOPLE = Path(__file__).resolve().parents[2] / "examples" / "people" / "topics.toml"

Row = tuple[Any, ...]


def rows(frame: DataFrame) -> set[Row]:
    found = [
        tuple(x.astimezone(dt.timezone.utc) if isinstance(x, dt.datetime) else x for x in row)
        for row in frame.collect()
    ]
    assert len(set(found)) == len(found)
    return set(found)


def people_messages(seed: int, count: int) -> list[Message]:
    """Return creations, moves, changes and deletions of a few people, their colours and cheeses."""
    rng = random.Random(seed)
    found = []
    for entry in range(count):
        who, what = rng.randrange(6), rng.choice(["people"] * 3 + ["colours", "cheeses"])
        if what == "people" and rng.random() < 0.2:
            found.append(json_message("people", entry, id=who, op="d"))
        elif what == "people":
            fields = {"name": f"n{entry}", "account_id": rng.choice("abc")}
            found.append(json_message("people", entry, id=who, op="u", **fields))
        elif rng.random() < 0.2:
            found.append(message(what, entry, who, None))
        else:
            value = {what[:-1]: f"{what}{entry}"}
            found.append(json_message(what, entry, who, person_id=who, **value))
    return found


def expected(messages: list[Message]) -> tuple[set[Row], set[Row]]:
    """Return `people_per_account` and `favourites`, from the latest message of each key."""
    latest: dict[str, dict[str, dict[str, Any]]] = {}
    for m in sorted(messages, key=lambda m: m.position):
        content = json.loads(m.payload) if m.payload else {"op": "d"}
        latest.setdefault(m.topic, {})[str(m.key)] = content
    live = {
        topic: {key: row for key, row in found.items() if row.get("op") != "d"}
        for topic, found in latest.items()
    }
    people = live.get("people", {})
    counts = Counter(row["account_id"] for row in people.values())
    liked = {
        (
            row["id"],
            row["name"],
            live.get("colours", {}).get(key, {}).get("colour"),
            live.get("cheeses", {}).get(key, {}).get("cheese"),
        )
        for key, row in people.items()
    }
    return set(counts.items()), liked


def kept(lake: SilverLake) -> tuple[set[Row], set[Row]]:
    return (
        rows(lake.table("people_per_account").drop("silver_batch")),
        rows(lake.table("favourites").drop("silver_batch")),
    )


@pytest.mark.nightly
def test_aggregates_and_joins_follow_their_changelogs(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last batch counts as one of too many rows for the driver."""
    lake = SilverLake(spark, tmp_path, load_topics(PEOPLE))
    messages = people_messages(1, 45)
    shuffled = random.Random(2).sample(messages, len(messages))
    for begin in range(0, 45, 15):
        if begin == 30:
            monkeypatch.setattr("silver.materialized.MOST_ROWS", 0)
        lake.put([*shuffled[begin : begin + 15], *shuffled[max(begin - 5, 0) : begin]])
        lake.refine()
        assert kept(lake) == expected(shuffled[: begin + 15])
    updated = lake.updated("favourites")
    assert any(0 < count < 6 for count in updated), "merges update all rows"


TWICE = """
[topics.people]
kind = "changelog"
key = ["id"]
[topics.people.fields]
id = "int"
town = "string"
name = { type = "string", required = false }

[views.towns]
description = "Towns"
key = ["town"]
columns = { town = "string", name = "string" }
sources = { people = ["town"] }
sql = "SELECT town, name FROM people"
"""


def test_a_query_that_gives_a_key_twice_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    lake = SilverLake(spark, tmp_path, declared(tmp_path, TWICE))
    lake.put(json_message("people", n, id=n, town="bath") for n in range(2))
    with pytest.raises(LakehouseError, match="view 'towns'.*key more than once: town = bath"):
        lake.refine()


def test_a_view_that_is_declared_later_or_changed_is_built_from_all_rows(
    spark: SparkSession, tmp_path: Path
) -> None:
    text = TWICE.replace("SELECT town, name FROM", "SELECT town, max(name) AS name FROM") + "\n"
    view = text.index("[views")
    counted = text.replace('people"\n', 'people GROUP BY town"\n')
    lake = SilverLake(spark, tmp_path, declared(tmp_path, text[:view]))
    lake.put([json_message("people", 1, id=1, town="bath", name="ada")])
    lake.refine()
    lake.topics = declared(tmp_path, counted)
    lake.put([json_message("people", 2, id=2, town="york", name="bob")])
    lake.refine()
    towns = lake.table("towns").drop("silver_batch")
    assert rows(towns) == {("bath", "ada"), ("york", "bob")}
    lake.topics = declared(tmp_path, counted.replace("max(name)", "upper(max(name))"))
    lake.put([json_message("people", 3, id="x", town="york")])
    lake.refine()
    lake.put([json_message("people", 4, id=1, town="york", name="eve")])
    lake.refine()
    assert rows(lake.table("towns").drop("silver_batch")) == {("york", "EVE")}


@pytest.mark.nightly
def test_records_replayed_from_the_quarantine_are_in_the_views(
    spark: SparkSession, tmp_path: Path
) -> None:
    text = TWICE.replace(
        '"SELECT town, name FROM people"',
        '"SELECT town, count(*) AS name FROM people GROUP BY town"',
    )
    strict = text.replace('{ type = "string", required = false }', '"string"')
    lake = SilverLake(spark, tmp_path, declared(tmp_path, strict))
    lake.put([json_message("people", 1, id=1, town="bath", name="ada")])
    lake.put(
        [json_message("people", 2, id=2, town="bath"), json_message("people", 3, id=1, town="york")]
    )
    lake.refine()
    lake.topics = declared(tmp_path, text)
    replay(spark, lake.lake, Selection())
    assert rows(lake.table("towns").drop("silver_batch")) == {("bath", "1"), ("york", "1")}


# Each view is declared after those that it reads, so that Spark can be the oracle.
TOWNS = """
[topics.people]
kind = "changelog"
key = ["id"]
delete = { field = "op", equals = "d" }
truncate = { field = "op", equals = "t" }
[topics.people.fields]
id = "long"
op = "string"
town = { type = "string", required = false }
team = { type = "int", required = false }
seen = { type = "int", required = false }

[topics.teams]
kind = "changelog"
key = ["id"]
[topics.teams.fields]
id = "int"
boss = { type = "string", required = false }

[topics.visits]
kind = "events"
key = ["id"]
[topics.visits.fields]
id = "int"
person = "long"
at = "timestamp_ms"
minutes = "int"
[topics.visits.lookups]
visitor = { topic = "people", on = "person" }
"""
VIEWS = """
[views.named]
description = "Has no key, so it becomes a part of the queries that read it"
sql = "SELECT id, upper(town) AS town, team FROM people WHERE town IS NOT NULL -- with a name"

[views.per_town]
description = "People of each town, NULL included"
key = ["town"]
columns = { town = "string", people = "bigint" }
sql = "SELECT town, count(*) AS people FROM people GROUP BY town"

[views.with_boss]
description = "A join of changelogs by a column that is no key"
key = ["id"]
columns = { id = "bigint", town = "string", boss = "string" }
sql = "SELECT n.id, n.town, t.boss FROM named n LEFT JOIN teams AS t ON n.team = t.id"

[views.per_boss]
description = "Reads a view with a key"
key = ["boss"]
columns = { boss = "string", people = "bigint", towns = "bigint" }
sql = '''
SELECT boss, count(*) AS people, count(DISTINCT town) AS towns FROM with_boss GROUP BY boss
'''

[views.bosses]
description = "Reads such a view, and a table"
key = ["id"]
columns = { id = "int", boss = "string", people = "bigint" }
sql = "SELECT t.id, t.boss, b.people FROM teams AS t JOIN per_boss AS b ON t.boss = b.boss"

[views.numbered]
description = "The number of a person depends on the other people of the team"
key = ["id"]
columns = { id = "bigint", team = "int", place = "int" }
sql = '''
SELECT id, team, row_number() OVER (PARTITION BY team ORDER BY town, id) AS place FROM people
'''

[views.hours_of_towns]
description = "Visits of two hours that overlap, by the town that was looked up"
key = ["town", "until"]
columns = { town = "string", until = "timestamp", visits = "bigint" }
sql = '''
SELECT visitor.town, window.end AS until, count(*) AS visits
FROM enriched_visits GROUP BY visitor.town, window(at, '2 hours', '1 hour')
'''

[views.shares]
description = "A part of the whole, so each row depends on all people"
key = ["town"]
columns = { town = "string", part = "double" }
sql = "SELECT town, count(*) / sum(count(*)) OVER () AS part FROM people GROUP BY town"
"""


# Each topic and each view takes seconds in each batch.
CHANGELOGS = TOWNS[: TOWNS.index("[topics.visits]")]
SOME_VIEWS = VIEWS[: VIEWS.index("[views.numbered]")]
FEW_VIEWS = VIEWS[: VIEWS.index("[views.per_boss]")]


def assert_right(lake: SilverLake, *names: str) -> None:
    """Compare views with their queries, which Spark runs on all rows of the topics' tables."""
    session = lake.spark.newSession()
    for topic in lake.topics.changelogs():
        live = lake.table(f"{topic.name}_state").where("NOT is_deleted")
        session.createDataFrame(live.toArrow(), live.schema).createOrReplaceTempView(topic.name)
    for topic in lake.topics.events():
        found = lake.table(f"enriched_{topic.name}")
        session.createDataFrame(found.toArrow(), found.schema).createOrReplaceTempView(
            f"enriched_{topic.name}"
        )
    for view in lake.topics.views.values():
        session.sql(view.sql).createOrReplaceTempView(view.name)
    for name in names or [view.name for view in lake.topics.kept_views()]:
        wanted = rows(session.table(name))
        assert rows(lake.table(name).drop("silver_batch")) == wanted, name


def changes_of_towns(chance: random.Random, begin: int, count: int) -> Iterator[Message]:
    """Yield moves, deletions and resends of a few people, changes of their teams, and visits."""
    for entry in range(begin, begin + count):
        who, what = chance.randrange(8), chance.choice(["people"] * 3 + ["teams", "visits"])
        if what == "people" and chance.random() < 0.15:
            yield json_message("people", entry, id=who, op="d")
        elif what == "people":
            place = {"town": chance.choice("abc"), "team": chance.randrange(4)}
            given = {name: value for name, value in place.items() if chance.random() < 0.9}
            yield json_message("people", entry, id=who, op="u", seen=entry, **given)
        elif what == "teams" and chance.random() < 0.2:
            yield message("teams", entry, chance.randrange(4), None)
        elif what == "teams":
            yield json_message("teams", entry, id=chance.randrange(4), boss=chance.choice("xyz"))
        else:
            at = 1_800_000_000_000 + chance.randrange(6 * 3_600_000)
            minutes = chance.randrange(60)
            visit = chance.randrange(20)
            yield json_message("visits", entry, id=visit, person=who, at=at, minutes=minutes)


def of_changelogs(messages: Iterable[Message]) -> Iterator[Message]:
    return (each for each in messages if each.topic != "visits")


def test_views_are_planned_from_their_queries(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_nightly: bool
) -> None:
    """Views of views, joins by columns that are no keys, windows of time, and whole views.

    The second batch counts as one of too many rows for the driver. At night also a truncation, and
    a change of a column that no view uses.
    """
    lake = SilverLake(spark, tmp_path, declared(tmp_path, TOWNS + VIEWS))
    chance = random.Random(3)
    with capture_logs() as logs:
        for begin, count in ((0, 30), (30, 20)):
            lake.put(changes_of_towns(chance, begin, count))
            with monkeypatch.context() as patch:
                if begin:
                    patch.setattr("silver.materialized.MOST_ROWS", 0)
                lake.refine()
            assert_right(lake)
    told = [each for each in logs if "computed whole" in each["event"]]
    assert {each["view"] for each in told} == {"shares"}
    assert {each["reason"] for each in told} == {
        "a window function does not partition by people.town (line 1)"
    }
    if not is_nightly:
        return
    lake.put([json_message("people", 60, id=0, op="t"), json_message("people", 61, id=5, op="u")])
    lake.refine()
    assert rows(lake.table("per_town").drop("silver_batch")) == {(None, 1)}
    assert_right(lake)

    names = ("per_town", "with_boss", "per_boss", "bosses", "numbered", "shares")
    before = versions(lake, *names)
    lake.put([json_message("people", 62, id=5, op="u", seen=2)])
    with monkeypatch.context() as patch:
        patch.setattr(KeptView, "_update", None)
        patch.setattr("silver.view_plan.terms_sql", None)
        lake.refine()
    assert [row["seen"] for row in lake.rows("people_state", "NOT is_deleted")] == [2]
    assert versions(lake, *names) == before


def versions(lake: SilverLake, *names: str) -> list[int]:
    return [DeltaTable(lake.settings.table_path("silver", name)).version() for name in names]


@pytest.mark.nightly
def test_a_batch_that_was_killed_among_the_views_is_repeated(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The view that `bosses` reads has changed before the repetition, and does not change in it."""
    lake = SilverLake(spark, tmp_path, declared(tmp_path, CHANGELOGS + SOME_VIEWS))
    lake.put(json_message("people", n, id=n, op="u", town="a", team=n % 2) for n in range(4))
    lake.put(json_message("teams", n, id=n, boss="xy"[n]) for n in range(2))
    lake.refine()
    refresh, what = KeptView.refresh, "killed"

    def killed(self: Any, *given: Any) -> None:
        if isinstance(self, KeptView) and self._view.name != "bosses":
            return refresh(self, *given)
        raise LakehouseError(what)

    lake.put([json_message("people", 9, id=1, op="u", town="b", team=0)])
    for target, place in ((KeptView, "refresh"), (Refinery, "_write_audit")):
        with monkeypatch.context() as patch:
            patch.setattr(target, place, killed)
            with pytest.raises(LakehouseError, match="killed"):
                lake.refine()
    before = versions(lake, "with_boss", "per_boss", "bosses")
    lake.refine()
    assert versions(lake, "with_boss", "per_boss", "bosses") == before
    assert rows(lake.table("bosses").drop("silver_batch")) == {(0, "x", 3), (1, "y", 1)}
    assert_right(lake)


ODD = """
[topics.users]
kind = "changelog"
key = ["id"]
merged_into = "parent"
[topics.users.fields]
id = "long"
parent = { type = "long", required = false }
town = { type = "string", required = false }

[views.declared]
description = "The planner does not know the subquery, so 'sources' say what the key depends on"
key = ["town"]
columns = { town = "string", users = "bigint" }
sources = { users = ["town"] }
sql = "SELECT town, count(*) AS users FROM users GROUP BY town HAVING count(*) > (SELECT 0)"

[views.merged]
description = "Its key changes without a message"
key = ["resolved_id"]
columns = { resolved_id = "bigint", users = "bigint" }
sql = "SELECT resolved_id, count(*) AS users FROM users GROUP BY resolved_id"

[views.converted]
description = "Is stored with another type, so rows cannot be found by the query's values"
key = ["id"]
columns = { id = "string", town = "string" }
sql = "SELECT id, town FROM users"

[views.all_of_them]
description = "Has a constant for a key"
key = ["what"]
columns = { what = "string", users = "bigint" }
sql = "SELECT 'all' AS what, count(*) AS users FROM users GROUP BY 'all'"
"""


@pytest.mark.nightly
def test_declared_sources_merged_keys_and_converted_columns(
    spark: SparkSession, tmp_path: Path
) -> None:
    lake = SilverLake(spark, tmp_path, declared(tmp_path, ODD))
    lake.put(json_message("users", n, id=n, town="ab"[n % 2]) for n in range(6))
    lake.put([json_message("users", 6, id=2, town="a", parent=1)])
    lake.refine()
    with capture_logs() as logs:
        for batch in (
            [{"id": 1, "town": "b", "parent": 3}],
            [{"id": 4, "town": "c"}, {"id": 5}],
        ):
            lake.put(json_message("users", 10 + each["id"], **each) for each in batch)
            lake.refine()
            assert_right(lake, "declared", "merged", "all_of_them")
    found = rows(lake.table("converted").drop("silver_batch"))
    assert found == {("0", "a"), ("1", "b"), ("2", "a"), ("3", "b"), ("4", "c"), ("5", None)}
    told = {each["view"]: each["reason"] for each in logs if "reason" in each}
    assert told == {
        "declared": "a subquery in an expression is not supported; use a join (line 1)",
        "converted": "its column id is of the type bigint, but is declared as string",
    }


@pytest.mark.nightly
def test_large_batches_are_computed_whole(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = SilverLake(spark, tmp_path, declared(tmp_path, TOWNS + FEW_VIEWS))
    chance = random.Random(8)
    lake.put(changes_of_towns(chance, 0, 20))
    lake.refine()
    monkeypatch.setattr(KeptView, "_update", None)
    for begin, limit in ((20, "silver.view_sources.FEW"), (40, "silver.records.batch_stats.FEW")):
        with monkeypatch.context() as patch:
            patch.setattr(limit, 0)
            lake.put(changes_of_towns(chance, begin, 20))
            lake.refine()
            assert_right(lake)


@pytest.mark.nightly
def test_views_follow_after_a_restore(spark: SparkSession, tmp_path: Path) -> None:
    """The feeds hold the batch that was undone and the restore, and both change nothing."""
    lake = SilverLake(spark, tmp_path, declared(tmp_path, CHANGELOGS + FEW_VIEWS))
    chance = random.Random(9)
    lake.put(of_changelogs(changes_of_towns(chance, 0, 40)))
    lake.refine()
    snapshot = latest_snapshot(lake.lake)
    assert snapshot is not None
    lake.put(of_changelogs(changes_of_towns(chance, 40, 20)))
    lake.refine()
    for spec in silver_tables(lake.topics):
        lake.lake.table(spec).spark(spark).restoreToVersion(snapshot.versions[spec.full_name])
    lake.put(of_changelogs(changes_of_towns(chance, 60, 10)))
    lake.refine()
    assert_right(lake)


SEATS = """
[views.seats]
description = "Numbers the people of a team by their town"
key = ["town"]
columns = { town = "string", team = "int", place = "int" }
sql = "SELECT town, team, row_number() OVER (PARTITION BY team ORDER BY town) AS place FROM people"
"""


def test_a_key_of_a_row_that_is_not_computed_again_is_refused(
    spark: SparkSession, tmp_path: Path
) -> None:
    lake = SilverLake(spark, tmp_path, declared(tmp_path, TOWNS + SEATS))
    lake.put(json_message("people", n, id=n, op="u", town="abc"[n], team=n) for n in range(3))
    lake.refine()
    lake.put([json_message("people", 3, id=3, op="u", town="b", team=0)])
    with pytest.raises(LakehouseError, match="view 'seats'.*key more than once: town = b"):
        lake.refine()


def test_declared_sources_name_columns_that_exist(spark: SparkSession, tmp_path: Path) -> None:
    text = ODD.replace('users = ["town"]', 'users = ["place"]')
    lake = SilverLake(spark, tmp_path, declared(tmp_path, text[: text.index("[views.merged]")]))
    lake.put([json_message("users", 1, id=1, town="a")])
    lake.refine()
    lake.put([json_message("users", 2, id=2, town="a")])
    with pytest.raises(LakehouseError, match="'declared'.* the column 'place' of 'users'"):
        lake.refine()
