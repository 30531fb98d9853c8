"""Tests what a look at the lake finds, and that looking costs little."""

import datetime as dt
import threading
import time
from pathlib import Path

import pytest
from deltalake import DeltaTable
from quiet_lake import UTC, QuietLake
from served_console import quiet_settings
from tenacity import Retrying, retry_if_not_result, stop_after_delay, wait_fixed

from lake.tables.log import TableFiles
from lakehouse.console import watcher
from lakehouse.console.watcher import Sample, TableSample, Watcher

NOW = dt.datetime(2026, 3, 1, 12, tzinfo=UTC)


@pytest.fixture
def quiet(tmp_path: Path) -> QuietLake:
    found = QuietLake(quiet_settings(tmp_path))
    found.land("users", [b"{}"] * 9, NOW)
    found.keep("users", [{"id": n, "is_deleted": n < 2} for n in range(6)], NOW)
    found.audit(1, NOW, users=5)
    found.audit(2, NOW + dt.timedelta(seconds=5), users=2)
    found.publish(1, NOW + dt.timedelta(seconds=3), points=[{"id": 1}])
    return found


def look(quiet: QuietLake, found: Watcher | None = None) -> Sample:
    found = found or Watcher(quiet.lake)
    found._look()  # noqa: SLF001 - what the thread does
    return found.sample


def test_a_look_finds_rows_lag_and_how_far_gold_is(quiet: QuietLake) -> None:
    sample = look(quiet)
    assert sample.tables["bronze.users"].rows == 9
    assert sample.tables["bronze.users"].newest == NOW.timestamp()
    assert sample.tables["silver.users_state"].rows == 4, "deleted keys do not count"
    assert sample.unrefined == {"users": 2}
    assert sample.gold_at == NOW.timestamp() + 3
    assert (sample.gold_behind, sample.gold_since) == (1, NOW.timestamp() + 5)
    assert sample.streams["bronze.users"].state == "stopped"
    assert "gold.cuts" not in sample.graph.nodes


def test_only_what_has_changed_is_read_again(
    quiet: QuietLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = Watcher(quiet.lake)
    look(quiet, found)
    opened: list[DeltaTable] = []
    read = TableFiles.__init__

    def noted(files: TableFiles, log: DeltaTable) -> None:
        opened.append(log)
        read(files, log)

    monkeypatch.setattr(TableFiles, "__init__", noted)
    look(quiet, found)
    assert opened == []
    quiet.land("users", [b"{}"], NOW)
    quiet.publish(2, NOW + dt.timedelta(seconds=9), points=[{"id": 1}])
    sample = look(quiet, found)
    assert len(opened) == 4, "of the topic, the mart and the two tables of gold"
    assert sample.unrefined == {"users": 3}
    assert (sample.gold_behind, sample.gold_since) == (0, None)


def test_rates_are_means_of_the_last_seconds(
    quiet: QuietLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = iter([100.0, 104.0, 108.0, 130.0])
    rates = Watcher(quiet.lake)._tables._rates  # noqa: SLF001
    monkeypatch.setattr(watcher.time, "monotonic", lambda: next(clock))
    assert rates({"t": 0}) == {}
    assert rates({"t": 40}) == {"t": 10.0}
    assert rates({"t": 40, "new": 5}) == {"t": 5.0}
    assert rates({"t": 40, "new": 5})["t"] == 0.0


def test_a_dead_broker_and_a_broken_table_do_not_stop_the_watch(quiet: QuietLake) -> None:
    found = Watcher(quiet.lake)
    found.start()
    try:
        until = {"stop": stop_after_delay(20), "wait": wait_fixed(0.05)}
        wait = Retrying(retry=retry_if_not_result(bool), **until)  # type: ignore[arg-type]
        wait(lambda: found.sample.broker is False and found.sample.tables)
        assert found.sample.lags == {}
        log = Path(quiet.lake.table(watcher.bronze_table("users")).path) / "_delta_log"
        (log / f"{9:020}.json").write_text("no JSON")
        found.look_soon()
        wait(lambda: found.sample.problem)
        assert found.sample.tables["bronze.users"].rows == 9, "what was known stays"
        (log / f"{9:020}.json").unlink()
        found.look_soon()
        wait(lambda: not found.sample.problem)
    finally:
        begun = time.monotonic()
        found.stop()
    assert time.monotonic() - begun < 5
    assert not any(each.name.startswith("console-") for each in threading.enumerate())


def test_the_rest_after_a_look_grows_with_its_cost(quiet: QuietLake) -> None:
    found = Watcher(quiet.lake)
    rests: list[float | None] = []

    class Woken(threading.Event):
        def wait(self, timeout: float | None = None) -> bool:
            rests.append(timeout)
            found._stop.set()  # noqa: SLF001
            return True

    def use(seconds: float) -> None:
        until = time.thread_time() + seconds
        while time.thread_time() < until:
            pass

    found._repeat(lambda: None, Woken())  # noqa: SLF001
    found._stop.clear()  # noqa: SLF001
    found._pages.add(None)  # type: ignore[arg-type] # noqa: SLF001
    found._repeat(lambda: None, Woken())  # noqa: SLF001
    found._stop.clear()  # noqa: SLF001
    found._repeat(lambda: use(0.1), Woken())  # noqa: SLF001
    found._stop.clear()  # noqa: SLF001
    found._repeat(lambda: use(0.3), Woken())  # noqa: SLF001
    assert rests[:2] == [watcher.SELDOM, watcher.SOONEST]
    assert rests[2] is not None
    assert 0.1 * watcher.REST <= rests[2] < watcher.LONGEST_REST
    assert rests[3] == watcher.LONGEST_REST


def test_a_sample_knows_nothing_at_first() -> None:
    assert Sample().broker is None
    assert TableSample(1, 2, 3, 4).newest is None
