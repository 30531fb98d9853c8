"""Tests the loop that takes the place of a streaming query, without a database."""

from collections.abc import Callable
from pathlib import Path
from threading import Event

import pytest

from lake.settings.settings import load_settings
from lake.streams.checkpoint import claim
from lake.streams.given_up import given_up
from lake.streams.supervisor import Stream
from lakehouse.sinks.loop import Loop
from pulsar_spark.errors import LakehouseError


class Work:
    """A batch that follows the script of a test, and notes when it is released."""

    def __init__(self, *results: bool | Exception) -> None:
        self.results = list(results)
        self.done, self.closed, self.cancelled = 0, Event(), Event()
        self.begun = Event()

    def __call__(self) -> bool:
        self.begun.set()
        self.done += 1
        result = self.results.pop(0) if self.results else False
        if isinstance(result, Exception):
            raise result
        return result

    def loop(self, *, available_now: bool = True, work: Callable[[], bool] | None = None) -> Loop:
        return Loop(work or self, self.cancelled.set, self.closed.set, available_now=available_now)


def test_it_ends_when_there_is_nothing_left_and_counts_its_batches() -> None:
    work = Work(True, True, False, True)
    loop = work.loop()
    assert work.closed.wait(10)
    loop.stop()
    assert (work.done, [each.batchId for each in loop.recentProgress]) == (3, [0, 1])
    assert loop.lastProgress == loop.recentProgress[-1]
    assert not loop.isActive
    assert not work.cancelled.is_set()


def test_a_batch_that_runs_is_cancelled_when_it_is_stopped() -> None:
    work = Work()

    def long() -> bool:
        work.begun.set()
        assert work.cancelled.wait(10)
        return False

    loop = work.loop(work=long, available_now=False)
    assert work.begun.wait(10)
    assert loop.is_running
    loop.stop()
    assert work.closed.is_set()
    assert not loop.isActive


def test_a_stream_restarts_it_after_an_error_that_may_pass(tmp_path: Path) -> None:
    class PassingError(LakehouseError):
        may_pass = True

    settings = load_settings(home=tmp_path, restarts=2, restart_delay=0.01)
    works = [Work(True, PassingError("lost")), Work(PassingError("lost")), Work(True)]
    started = iter(works)

    def start() -> object:
        return next(started).loop().running(claim(settings, "export.x"))

    stream = Stream("export.x", settings, start, available_now=True)  # type: ignore[arg-type]
    stream.begin().keep(Event())
    assert [work.done for work in works] == [2, 1, 2]
    assert given_up(settings, "export.x") is None


def test_a_stream_gives_it_up_after_an_error_that_lasts(tmp_path: Path) -> None:
    settings = load_settings(home=tmp_path, restarts=2, restart_delay=0.01)
    work = Work(LakehouseError("The table does not fit."))

    def start() -> object:
        return work.loop().running(claim(settings, "export.x"))

    stream = Stream("export.x", settings, start, available_now=False)  # type: ignore[arg-type]
    with pytest.raises(LakehouseError, match="does not fit"):
        stream.begin().keep(Event())
    stopped = given_up(settings, "export.x")
    assert stopped is not None
    assert stopped.reason == "The table does not fit."
    claim(settings, "export.x").release()  # the lock is free
