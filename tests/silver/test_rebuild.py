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
from silver.contract.tables import CUTS, silver_tables
from silver.quarantine import Selection, discard
from silver.rebuild import rebuild, snapshot_at

TABLES = ("people_state", "enriched_visits", "quarantine")
BEFORE = PEOPLE_AND_VISITS.format(
    people='name = "string"', visits='place = "string"\nminutes = "int"'
)
AFTER = PEOPLE_AND_VISITS.replace(
    'kind = "events"\nkey = ["id"]', 'kind = "events"\nkey = ["minutes", "id"]'
).format(people='name = { type = "string", required = false }', visits='minutes = "long"')


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


def rows(lake: SilverLake) -> dict[str, list[str]]:
    """Return the rows of silver without batch numbers."""
    numbers = ("silver_batch", "arrived_batch")
    return {name: sorted(map(str, lake.table(name).drop(*numbers).collect())) for name in TABLES}


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
