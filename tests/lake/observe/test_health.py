"""Tests that the probes tell a stuck or unready process, each for a real reason."""

import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from threading import Event, Thread
from typing import NamedTuple

import pytest
from live_shop import until
from pyspark.sql import DataFrame, SparkSession

from lake.observe.exporter import serving
from lake.observe.health import ANSWER_SECONDS, HEALTH, Health
from lake.settings.settings import LakeSettings, load_settings
from lake.streams.checkpoint import BatchSpan, Running, claim, start_query
from lake.streams.supervisor import Stream
from lakehouse.runtime.ports import free_port
from lakehouse.up import sql_endpoint
from pulsar_spark.errors import CheckpointError, LakehouseError

QUERY = "bronze.probed"


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


class Answer(NamedTuple):
    status: int
    text: str


def ask(settings: LakeSettings, path: str) -> Answer:
    place = f"http://127.0.0.1:{settings.metrics_port}/{path}"
    try:
        with urllib.request.urlopen(place, timeout=30) as answer:
            return Answer(answer.status, answer.read().decode())
    except urllib.error.HTTPError as error:
        with error:
            return Answer(error.code, error.read().decode())


@pytest.fixture
def served(settings: LakeSettings) -> LakeSettings:
    return settings.model_copy(update={"metrics_port": free_port(), "stuck_seconds": 2.0})


@pytest.fixture
def plain(tmp_path: Path) -> Iterator[LakeSettings]:
    own = load_settings(home=tmp_path, metrics_port=free_port(), restarts=0, stuck_seconds=60)
    with serving(own):
        yield own


def test_a_stream_without_progress_is_stuck_and_one_that_waits_is_not() -> None:
    clock = Clock()
    health = Health(clock)
    health.need(["streams"])
    assert health.unready() == ["no stream has been started yet"]
    health.report("a", "starting")
    assert health.unready() == ["a is starting"]
    health.report("a", "running")
    health.report("b", "waiting for its restart")
    assert health.unready() == ["b is waiting for its restart"]
    clock.now += 100
    assert health.stuck(100) == []
    clock.now += 1
    assert health.stuck(100) == ["a is running and has made no progress for 101 s"]
    health.progressed("a")
    health.progressed("b")
    health.progressed("unknown")
    assert health.stuck(100) == []
    clock.now += 1000
    health.report("a", "given up")
    assert health.stuck(100) == [], "a new process would not help"
    assert health.unready() == ["a is given up", "b is waiting for its restart"]
    health.need([])
    assert health.unready() == []


def test_a_part_is_asked_rarely_and_only_while_it_serves() -> None:
    clock, asked = Clock(), []
    health = Health(clock)
    health.need(["sql"])
    assert health.unready() == ["sql does not serve yet"]
    is_broken = True

    def check() -> None:
        asked.append(clock.now)
        if is_broken:
            message = "a detail that no stranger should see"
            raise OSError(message)

    with health.serving("sql", check):
        assert health.unready() == health.unready() == ["sql does not answer (OSError)"]
        assert len(asked) == 1
        is_broken = False
        clock.now += ANSWER_SECONDS
        assert health.unready() == []
        assert len(asked) == 2
    assert health.unready() == ["sql does not serve yet"]


def test_the_probes_are_served_beside_the_metrics(plain: LakeSettings) -> None:
    assert ask(plain, "livez") == (200, "ok\n")
    assert ask(plain, "readyz") == (503, "no stream has been started yet\n")
    HEALTH.report("bronze.o", "running")
    assert ask(plain, "readyz") == (200, "ok\n")
    assert "# HELP" in ask(plain, "metrics").text
    HEALTH.report("bronze.o", "given up")
    assert ask(plain, "readyz") == (503, "bronze.o is given up\n")
    assert ask(plain, "livez").status == 200


def test_a_stream_that_is_given_up_makes_the_process_unready(plain: LakeSettings) -> None:
    def refuse() -> Running:
        message = "The table is of another checkpoint."
        raise CheckpointError(message)

    stream = Stream(QUERY, plain, refuse, available_now=False).begin()
    assert ask(plain, "readyz") == (503, f"{QUERY} is starting\n")
    with pytest.raises(LakehouseError):
        stream.keep(Event())
    assert ask(plain, "readyz") == (503, f"{QUERY} is given up\n")
    assert ask(plain, "livez") == (200, "ok\n")


@pytest.mark.timeout(300)
def test_a_batch_that_hangs_is_reported_and_an_idle_stream_and_a_working_one_are_not(
    spark: SparkSession, served: LakeSettings
) -> None:
    hang, stop, batches = Event(), Event(), []

    def run_batch(rows: DataFrame, span: BatchSpan) -> None:
        batches.append(span.id)
        if len(batches) == 2:
            hang.wait(200)

    def start() -> Running:
        rows = spark.readStream.format("rate").option("rowsPerSecond", 1).load()
        checkpoint = claim(served, QUERY)
        return start_query(rows, run_batch, "1 second", checkpoint, available_now=False)

    with serving(served):
        stream = Stream(QUERY, served, start, available_now=False).begin()
        keeper = Thread(target=stream.keep, args=[stop])
        keeper.start()
        try:
            until(lambda: ask(served, "readyz").status == 200, "the stream to be ready")
            until(lambda: ask(served, "livez").status == 503, "the hanging batch to be noticed")
            said = ask(served, "livez").text
            assert said.startswith(f"{QUERY} is running and has made no progress for ")
            assert ask(served, "readyz").status == 503
            hang.set()
            until(lambda: ask(served, "livez").status == 200, "progress to be noticed")
        finally:
            hang.set()
            stop.set()
            keeper.join()
        assert ask(served, "readyz") == (503, f"{QUERY} is ended\n")


@pytest.mark.timeout(300)
def test_an_endpoint_that_stops_makes_the_process_unready(
    spark: SparkSession, served: LakeSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lake.observe.health.ANSWER_SECONDS", 0.0)
    own = served.model_copy(update={"sql_port": free_port()})
    with serving(own, needs=["sql"]):
        assert ask(own, "readyz") == (503, "sql does not serve yet\n")
        with sql_endpoint(spark, own):
            assert ask(own, "readyz") == (200, "ok\n")
            away = own.model_copy(update={"sql_port": free_port()})
            with HEALTH.serving("sql", lambda: _ask_sql(away)):
                assert ask(own, "readyz") == (503, "sql does not answer (TTransportException)\n")
        assert ask(own, "readyz") == (503, "sql does not serve yet\n")


def _ask_sql(settings: LakeSettings) -> None:
    from lakehouse.sql.endpoint import answers

    answers(settings)
