"""Tests when gold is built again, with builds that do nothing."""

import contextlib
import datetime as dt
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Event
from typing import Any, NamedTuple

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from gold import refresh
from gold.build import PreparedBuild, has_snapshot
from gold.dbt.process import WarmDbt
from gold.dbt.results import BuildResult
from gold.errors import BuildError, GoldError
from gold.lock import alone
from gold.refresh import await_first_batch, keep_fresh
from lake.settings.settings import LakeSettings
from lake.tables.lake import Lake
from silver.contract.tables import CUTS

DONE = BuildResult([])
Run = Callable[[], BuildResult]


class Prepared(NamedTuple):
    run: Run


class ChangingLake(Lake):
    """A lake whose silver changes whenever it is looked at, and whose builds are functions."""

    def __init__(self, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__(LakeSettings(home=home))
        self.stop = Event()
        self.builds: list[Run] = []
        self.prepared = 0
        self.may_wait: list[bool] = []
        self.warm: set[WarmDbt] = set()
        self.version = 0
        self.snapshot_at = 0
        monkeypatch.setattr(refresh, "POLL_SECONDS", 0.01)
        monkeypatch.setattr(refresh, "silver_versions", self._silver)
        monkeypatch.setattr(refresh, "has_snapshot", self._snapshot)
        monkeypatch.setattr(refresh, "prepare_build", self._prepare)

    def _silver(self, _: Lake) -> dict[str, int]:
        self.version += 1
        return {"events": self.version}

    def _snapshot(self, _: Lake) -> bool:
        return self.version >= self.snapshot_at

    @contextlib.contextmanager
    def _prepare(self, _: Lake, *, may_wait: bool, warm: WarmDbt) -> Iterator[Prepared]:
        self.prepared += 1
        self.may_wait.append(may_wait)
        self.warm.add(warm)
        yield Prepared(self.builds.pop(0))


@pytest.fixture
def lake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ChangingLake:
    return ChangingLake(tmp_path, monkeypatch)


def succeed() -> BuildResult:
    return DONE


def fail() -> BuildResult:
    message = "a test failed"
    raise GoldError(message)


def test_the_first_build_waits_for_a_batch_of_silver(lake: ChangingLake) -> None:
    lake.snapshot_at = 4
    built_at: list[int] = []

    def build() -> BuildResult:
        built_at.append(lake.version)
        lake.stop.set()
        return DONE

    lake.builds = [build]
    assert list(keep_fresh(lake, lake.stop)) == [DONE]
    assert built_at == [4]


@pytest.mark.parametrize(("first", "seconds"), [(3, 60.0), (9**9, 0.1)])
def test_a_single_build_waits_for_a_batch_of_silver_but_not_for_ever(
    lake: ChangingLake, monkeypatch: pytest.MonkeyPatch, first: int, seconds: float
) -> None:
    asked: list[Lake] = []
    monkeypatch.setattr(refresh, "FIRST_BATCH_SECONDS", seconds)
    monkeypatch.setattr(refresh, "has_snapshot", lambda of: asked.append(of) or len(asked) >= first)
    await_first_batch(lake)
    assert (len(asked) == first) is (first == 3)
    assert {*asked} == {lake}


@pytest.mark.parametrize("batches", [0, 1])
def test_a_snapshot_is_a_row_of_silvers_cuts(tmp_path: Path, batches: int) -> None:
    lake = Lake(LakeSettings(home=tmp_path))
    rows = pa.table({"silver_batch": pa.array(range(batches), pa.int64())})
    write_deltalake(lake.table(CUTS).path, rows)
    assert has_snapshot(lake) is bool(batches)
    if not batches:  # nothing else of the build is asked
        nothing: Any = None
        with pytest.raises(GoldError, match="silver has not finished a batch yet"):
            PreparedBuild(lake, *[nothing] * 7).run()


def test_each_build_gives_its_result_or_error_and_frees_the_lock_in_between(
    lake: ChangingLake,
) -> None:
    lake.builds = [succeed, fail, succeed]
    results: list[str] = []
    for result in keep_fresh(lake, lake.stop):
        with alone(lake.settings):
            results.append(str(result))
        if not lake.builds:
            lake.stop.set()
    assert results == [str(DONE), "a test failed", str(DONE)]
    assert len(lake.warm) == 1, "dbt is loaded again for each build"


@pytest.mark.parametrize(("outcome", "reported"), [(succeed, [DONE]), (fail, [])])
def test_a_build_during_a_stop_is_reported_only_if_it_was_published(
    lake: ChangingLake, outcome: Run, reported: list[BuildResult]
) -> None:
    def stopped() -> BuildResult:
        lake.stop.set()
        return outcome()

    lake.builds = [stopped]
    assert list(keep_fresh(lake, lake.stop)) == reported


def test_a_stop_ends_the_wait_for_a_change_of_silver(
    lake: ChangingLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = iter(range(5))

    def unchanged(_: Lake) -> dict[str, int]:
        if next(looks) == 4:
            lake.stop.set()
        return {"events": 1}

    monkeypatch.setattr(refresh, "silver_versions", unchanged)
    lake.builds = [succeed, fail]
    assert list(keep_fresh(lake, lake.stop)) == [DONE]
    assert lake.prepared == 2


def test_gold_is_built_again_when_a_model_has_waited_enough(
    lake: ChangingLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(refresh, "silver_versions", lambda _: {"events": 1})
    due_at: list[dt.datetime] = []
    begun: list[dt.datetime] = []

    def build() -> BuildResult:
        begun.append(dt.datetime.now(dt.timezone.utc))
        if len(begun) == 2:
            lake.stop.set()
        due_at.append(begun[-1] + dt.timedelta(milliseconds=50))
        return BuildResult([], due_at=due_at[-1])

    lake.builds = [build, build]
    assert len(list(keep_fresh(lake, lake.stop))) == 2
    assert begun[1] >= due_at[0]


def test_a_build_that_fails_while_models_wait_is_repeated_without_waiting(
    lake: ChangingLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(refresh, "silver_versions", lambda _: {"events": 1})

    def fail_waiting() -> BuildResult:
        error = BuildError("a test failed")
        error.has_waited = True
        raise error

    def last() -> BuildResult:
        lake.stop.set()
        return DONE

    lake.builds = [fail_waiting, last]
    assert list(keep_fresh(lake, lake.stop)) == [DONE]
    assert lake.may_wait == [True, False]


def test_no_build_starts_after_the_caller_wants_to_leave(lake: ChangingLake) -> None:
    answers = iter([False, True])
    lake.builds = [succeed, fail]
    found = list(keep_fresh(lake, lake.stop, leave=lambda: next(answers)))
    assert found == [DONE]
    assert lake.prepared == 2


def test_no_build_starts_while_another_process_holds_the_lock(lake: ChangingLake) -> None:
    with alone(lake.settings), pytest.raises(GoldError, match="Another process"):
        next(keep_fresh(lake, lake.stop))
    assert lake.prepared == 0
