"""Tests that silver is rebuilt beside the tables that readers see and then swapped in.

The oracle is a lake that starts from scratch.
"""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from deltalake import DeltaTable
from messages import PEOPLE_AND_VISITS, json_message
from model import Message
from pyspark.sql import SparkSession
from silver_lake import SilverLake
from topic import declared

from lake.tables.lake import Lake
from lake.tables.swap import Swap
from pulsar_spark.errors import CheckpointError, LakehouseError, SettingsError
from silver import rebuild as rebuild_module
from silver.audit.snapshots import last_batch
from silver.contract.tables import CUTS, enriched_table, silver_tables
from silver.part import Part, outdated
from silver.quarantine import Selection, discard
from silver.rebuild import rebuild, snapshot_at

TABLES = ("people_state", "enriched_visits", "quarantine")
BEFORE = PEOPLE_AND_VISITS.format(
    people='name = "string"', visits='place = "string"\nminutes = "int"'
)
AFTER = PEOPLE_AND_VISITS.replace(
    'kind = "events"\nkey = ["id"]', 'kind = "events"\nkey = ["minutes", "id"]'
).format(people='name = { type = "string", required = false }', visits='minutes = "long"')


NOTES = """
[topics.notes]
kind = "events"
key = ["id"]
fields = { id = "int", text = "string" }

[views.seen]
description = "What was seen of each person. Grain: one person with visits"
key = ["person"]
columns = { person = "int", visits = "bigint", name = "string" }
sql = "SELECT person, count(*) visits, max(visitor.name) name FROM enriched_visits GROUP BY person"
"""


def history(begin: int, end: int) -> list[Message]:
    """Return people and visits.

    A third of the people have no name, and a quarter of the visits have no place. Some visits wait
    for their person, some have minutes too long for an int, and one never fits.
    """
    found = []
    for n in range(begin, end):
        named = {"name": f"n{n}"} if n % 3 else {}
        found.append(json_message("people", n, id=n % 5, **named))
        minutes = n if n % 5 else n + 2**40
        fields = {"place": f"p{n}", "minutes": minutes} if n % 4 else {"minutes": minutes}
        found.append(json_message("visits", n, id=n, person=n % 7, **fields))
    found.append(json_message("visits", 1000 + end, id=f"never{end}"))
    return found


def rows(lake: SilverLake, tables: tuple[str, ...] = TABLES) -> dict[str, list[str]]:
    """Return the rows of silver without batch numbers."""
    numbers = ("silver_batch", "arrived_batch")
    return {name: sorted(map(str, lake.table(name).drop(*numbers).collect())) for name in tables}


def commits_of(lake: SilverLake) -> Iterator[tuple[int, str | None]]:
    """Yield the time in ns and the write mode of each commit of silver."""
    for table in silver_tables(lake.topics):
        for file in Path(Lake(lake.settings).table(table).path, "_delta_log").glob("*.json"):
            actions = map(json.loads, file.read_text().splitlines())
            [told] = [action["commitInfo"] for action in actions if "commitInfo" in action]
            yield file.stat().st_mtime_ns, told["operationParameters"].get("mode")


@contextmanager
def readers(lake: SilverLake) -> Iterator[list[int]]:
    """Count the rows of a table repeatedly, and yield the list of counts."""
    path = lake.settings.table_path("silver", "enriched_visits")
    seen, stop = [DeltaTable(path).to_pyarrow_dataset().count_rows()], threading.Event()

    def read() -> None:
        while not stop.wait(0.05):
            seen.append(DeltaTable(path).to_pyarrow_dataset().count_rows())

    thread = threading.Thread(target=read)
    thread.start()
    try:
        yield seen
    finally:
        stop.set()
        thread.join()


@pytest.fixture(scope="module")
def lake(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> SilverLake:
    """A lake refined in two batches, with discarded records. The first test leaves it so."""
    tmp_path = tmp_path_factory.mktemp("rebuild")
    lake = SilverLake(spark, tmp_path / "lake", declared(tmp_path, BEFORE))
    for begin, end in ((0, 12), (12, 20)):
        lake.put(history(begin, end))
        lake.refine()
    discard(spark, lake.lake, Selection(reason="field 'id' is not of type int"))
    return lake


@pytest.mark.nightly
def test_a_replay_from_a_batch_continues_from_the_rows_of_that_time(
    lake: SilverLake, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The tables built by an interrupted full replay are not swapped in."""
    expected = rows(lake)

    def dies(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Swap, "commit", dies)
        with pytest.raises(KeyboardInterrupt):
            rebuild(spark, lake.lake)
    first, when = snapshot_at(lake.lake, "0"), lake.lake.table(CUTS).log()
    assert when.version() == 3
    assert snapshot_at(Lake(lake.settings), first.committed_at.isoformat()) == first
    for moment in ("99", "2000-01-01T00:00:00Z"):
        with pytest.raises(SettingsError, match="no snapshot of silver"):
            snapshot_at(Lake(lake.settings), moment)
    with pytest.raises(SettingsError, match="ISO 8601"):
        snapshot_at(Lake(lake.settings), "yesterday")
    rebuild(spark, lake.lake, first)
    assert rows(lake) == expected
    operations = [operation for _, operation in sorted(commits_of(lake))]
    replaced = [n for n, operation in enumerate(operations) if operation == "Overwrite"]
    assert len(replaced) == len(silver_tables(lake.topics)) - 1, "all tables except the snapshots"
    assert replaced == [*range(replaced[0], replaced[-1] + 1)], "the swaps are consecutive"
    kept = len(lake.rows("enriched_visits", "silver_batch = 0"))
    assert kept > 0, "earlier rows are taken over"


@pytest.mark.nightly  # other tests rebuild a whole lake, too
def test_a_rebuild_equals_a_new_lake_even_if_the_swap_is_interrupted(
    lake: SilverLake, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fresh = SilverLake(spark, tmp_path / "fresh", declared(tmp_path, AFTER))
    fresh.put([*history(0, 12), *history(12, 20)])
    fresh.refine()
    discard(spark, fresh.lake, Selection(reason="field 'id' is not of type int"))
    before = last_batch(Lake(lake.settings))
    lake.topics = fresh.topics
    with pytest.raises(LakehouseError, match="lakehouse replay --table silver"):
        lake.refine()

    def dies(*_: object) -> None:
        raise KeyboardInterrupt

    commits: list[bool] = []

    def commits_one(table: Swap, *, whole: bool) -> int:
        if commits:
            raise KeyboardInterrupt
        commits.append(whole)
        return commit(table, whole=whole)

    commit = Swap.commit
    with readers(lake) as seen:
        for target, name, dying in (
            (Swap, "commit", commits_one),
            (rebuild_module, "last_batch", dies),
        ):
            with monkeypatch.context() as patch:
                patch.setattr(target, name, dying)
                with pytest.raises(KeyboardInterrupt):
                    rebuild(spark, lake.lake)
        interrupted = "`lakehouse replay --table silver` was interrupted"
        with pytest.raises(CheckpointError, match=interrupted):
            lake.refine()
        rebuild(spark, lake.lake)
    assert rows(lake) == rows(fresh)
    assert set(seen) <= {12, 20}, "readers never see a partial rebuild"
    assert len(lake.rows("enriched_visits", f"minutes > {2**40}")) == 3
    assert not lake.rows("enriched_visits", f"silver_batch <= {before}")

    for each in (lake, fresh):
        each.put(history(20, 26))
        each.refine()
    assert rows(lake) == rows(fresh)
    assert not (lake.settings.lake_dir / "_replay").exists()


def test_one_table_is_rebuilt_with_what_is_computed_from_it(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_nightly: bool
) -> None:
    """The new column has values in all rows, and the tables of other topics stay as they are."""
    lake = SilverLake(spark, tmp_path / "lake", declared(tmp_path, BEFORE + NOTES))
    fresh = SilverLake(spark, tmp_path / "fresh", declared(tmp_path, AFTER + NOTES))
    tables = (*TABLES, "enriched_notes", "seen")
    notes = [json_message("notes", n, id=n, text=f"t{n}") for n in range(4)]
    for begin, end in ((0, 8), (8, 16)):
        lake.put([*history(begin, end), *notes])
        lake.refine()
    with pytest.raises(SettingsError, match="'silver.nothing' cannot.*silver.enriched_visits, "):
        Part.of(lake.lake, "nothing")
    assert Part.of(lake.lake, "people").made == (
        *("silver.people_state", "silver.enriched_visits", "silver.seen"),
    )
    lake.topics = fresh.topics
    with pytest.raises(LakehouseError, match="rebuild the table"):
        lake.refine()
    part = Part.of(lake.lake, "people")
    [found] = outdated(lake.lake, "silver")
    assert found.made == ("silver.enriched_visits", "silver.seen")

    def fails(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    # Bronze is ahead of silver, which reads on from here.
    unread = [m for m in history(16, 20) if m.topic == "visits"]
    lake.put(unread)
    before = lake.lake.table(enriched_table(lake.topics.topics["notes"], lake.topics)).log()
    commit = Swap.commit
    with monkeypatch.context() as patch:
        patch.setattr(Swap, "commit", lambda *a, **o: (commit(*a, **o), fails()))
        with pytest.raises(KeyboardInterrupt):
            rebuild(spark, lake.lake, part=part)
    with pytest.raises(CheckpointError, match="`lakehouse replay --table silver.people` was int"):
        rebuild(spark, lake.lake)
    assert outdated(lake.lake, "silver")[0] == part
    rebuild(spark, lake.lake, part=part)
    assert outdated(lake.lake, "silver") == []
    after = lake.lake.table(enriched_table(lake.topics.topics["notes"], lake.topics)).log()
    assert after.version() == before.version()

    fresh.put([*history(0, 8), *history(8, 16), *unread, *notes])
    fresh.refine()
    assert rows(lake, tables) == rows(fresh, tables)
    assert len(lake.rows("enriched_visits", f"minutes > {2**40}")) == 3
    for column in ("messages_in", "applied", "quarantined"):
        both = [each.audited(column, "topic <> 'people'") for each in (lake, fresh)]
        both[0]["notes"] = both[1]["notes"]  # which were sent twice
        assert both[0] == both[1], column
    if not is_nightly:
        return
    DeltaTable(lake.settings.table_path("silver", "enriched_notes")).delete("id = 1")
    rebuild(spark, lake.lake, part=Part.of(lake.lake, "enriched_notes"))
    lake.table("seen").limit(0).write.format("delta").mode("overwrite").save(
        lake.settings.table_path("silver", "seen")
    )
    rebuild(spark, lake.lake, part=Part.of(lake.lake, "seen"))
    for each in (lake, fresh):
        each.put(history(20, 26))
        each.refine()
    assert rows(lake, tables) == rows(fresh, tables)
    assert not (lake.settings.lake_dir / "_replay").exists()
