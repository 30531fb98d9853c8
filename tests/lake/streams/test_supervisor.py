"""Tests that failed streams are restarted, or given up without stopping the others."""

import json
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from threading import Event
from typing import Any

import psutil
import pytest
from deltalake import DeltaTable
from live_shop import DEADLINE_SECONDS, kept, until
from messages import message, order
from py4j.protocol import Py4JNetworkError
from pyspark.java_gateway import ensure_callback_server_started
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from silver_lake import SilverLake
from structlog.testing import capture_logs
from topic import LiveTopic, Outgoing, events

from bronze.ingest import ingest
from lake.settings.settings import LakeSettings, load_settings
from lake.streams.batches import Batches
from lake.streams.checkpoint import BatchSpan, Running, claim, newest_batch, start_query
from lake.streams.given_up import GIVEN_UP, given_up
from lake.streams.job import await_streams
from lake.streams.supervisor import Stream
from lake.tables.lake import Lake
from lake.topics.topic_file import TopicFile
from lakehouse.runtime.broker import Broker
from pulsar_spark.errors import CheckpointError, LakehouseError
from silver.refine import Refinery, refine

LOST = "[STREAM_FAILED] pulsar_spark.errors.DataLossError: messages are gone.\n SQLSTATE: 38000"
AWAY = "[STREAM_FAILED] pulsar_spark.errors.BrokerError: No answer.\n SQLSTATE: 38000"


class FailedQuery:
    """A query that has failed already."""

    isActive = False

    def __init__(self, error: Exception) -> None:
        self._error = error

    def exception(self) -> Exception:
        return self._error

    def stop(self) -> None:
        """Do nothing: the query has ended already."""


class Fragile:
    """Starts queries that fail; the first `finish` ones complete a batch before."""

    def __init__(self, settings: LakeSettings, error: Exception, finish: int = 0) -> None:
        self.starts = 0
        self._settings, self._error, self._finish = settings, error, finish

    def __call__(self) -> Running:
        self.starts += 1
        checkpoint = claim(self._settings, "bronze.o")
        if self.starts <= self._finish:
            commits = Path(checkpoint.path) / "commits"
            commits.mkdir(exist_ok=True)
            (commits / str(self.starts)).touch()
        return Running(FailedQuery(self._error), checkpoint, Batches(print))  # type: ignore[arg-type]


@pytest.fixture
def quick(tmp_path: Path) -> LakeSettings:
    return load_settings(home=tmp_path, restarts=2, restart_delay=0.001)


def keep(settings: LakeSettings, start: Fragile, *, available_now: bool = False) -> list[Any]:
    """Keep a stream until it is given up, and return number and delay of its restarts."""
    with capture_logs() as logs, pytest.raises(LakehouseError, match="The query bronze.o failed"):
        Stream("bronze.o", settings, start, available_now=available_now).begin().keep(Event())
    assert logs[-1]["event"] == "stream given up"
    assert logs[-1]["log_level"] == "error"
    claim(settings, "bronze.o").release()
    return [(line["restart"], line["seconds"]) for line in logs if "restart" in line]


def test_a_stream_is_restarted_with_longer_delays_and_then_given_up(
    quick: LakeSettings,
) -> None:
    start = Fragile(quick, RuntimeError(AWAY))
    assert keep(quick, start) == [("1 of 2", 0.001), ("2 of 2", 0.002)]
    assert start.starts == 3
    found = given_up(quick, "bronze.o")
    assert found is not None
    assert found.reason == "No answer."


def test_a_finished_batch_resets_the_restart_count_unless_the_stream_is_to_end(
    quick: LakeSettings,
) -> None:
    begun = [("1 of 2", 0.001)]
    found = keep(quick, Fragile(quick, RuntimeError(AWAY), finish=3))
    assert found == [*3 * begun, ("2 of 2", 0.002)]
    again = Fragile(quick, RuntimeError(AWAY), finish=9)
    assert len(keep(quick, again, available_now=True)) == 2


@pytest.mark.parametrize("error", [RuntimeError(LOST), Py4JNetworkError("gone")])
def test_a_stream_is_given_up_at_once_if_no_restart_helps(
    quick: LakeSettings, error: Exception
) -> None:
    start = Fragile(quick, error)
    assert keep(quick, start) == []
    assert start.starts == 1


class ToldInTheDelay(Event):
    """An event that is set as soon as someone waits longer than 100 s for it."""

    def wait(self, timeout: float | None = None) -> bool:
        if timeout is not None and timeout > 100:
            self.set()
        return super().wait(timeout)


def test_a_stream_that_waits_for_its_restart_stops_on_request(quick: LakeSettings) -> None:
    slow = quick.model_copy(update={"restart_delay": 200.0})
    start = Fragile(slow, RuntimeError(AWAY))
    Stream("bronze.o", slow, start, available_now=False).begin().keep(ToldInTheDelay())
    assert start.starts == 1
    claim(slow, "bronze.o").release()


def test_the_first_stream_that_is_given_up_ends_the_job_if_configured(quick: LakeSettings) -> None:
    strict = quick.model_copy(update={"exit_when_given_up": True})
    for settings, told in ((quick, False), (strict, True)):
        stop = Event()
        start = Fragile(settings, RuntimeError(LOST))
        with pytest.raises(LakehouseError, match="messages are gone."):
            Stream("bronze.o", settings, start, available_now=False).begin().keep(stop)
        assert stop.is_set() is told


class Uncaught:
    """Collects the uncaught exceptions of Java threads; implements Java's interface."""

    def __init__(self) -> None:
        self.errors: list[str] = []

    def uncaughtException(self, _: Any, error: Any) -> None:
        """Called by Java."""
        self.errors.append(error.toString())

    class Java:
        implements = ("java.lang.Thread$UncaughtExceptionHandler",)


@pytest.fixture
def uncaught(spark: SparkSession) -> Iterator[Uncaught]:
    gateway: Any = spark.sparkContext._gateway  # noqa: SLF001 - Python has no other way
    ensure_callback_server_started(gateway)
    found, thread = Uncaught(), gateway.jvm.java.lang.Thread
    before = thread.getDefaultUncaughtExceptionHandler()
    thread.setDefaultUncaughtExceptionHandler(found)
    yield found
    thread.setDefaultUncaughtExceptionHandler(before)


def wait_in_java(spark: SparkSession) -> None:
    spark._jvm.java.lang.Thread.sleep(1000 * DEADLINE_SECONDS)  # type: ignore[union-attr]  # noqa: SLF001


def run_a_long_job(spark: SparkSession) -> None:
    spark.range(1 << 50).selectExpr("sum(id % 7)").collect()


@pytest.mark.parametrize("work", [wait_in_java, run_a_long_job])
def test_a_batch_that_takes_too_long_to_stop_is_cancelled_without_an_error(
    spark: SparkSession,
    settings: LakeSettings,
    uncaught: Uncaught,
    work: Callable[[SparkSession], None],
) -> None:
    impatient = settings.model_copy(update={"stop_seconds": 0.1})
    begun = Event()

    def run_batch(rows: DataFrame, _: BatchSpan) -> None:
        begun.set()
        work(rows.sparkSession)

    def start() -> Running:
        rows = spark.readStream.format("rate").load()
        checkpoint = claim(impatient, "bronze.slow")
        return start_query(rows, run_batch, "0 seconds", checkpoint, available_now=False)

    stream = Stream("bronze.slow", impatient, start, available_now=False).begin()
    with capture_logs() as logs, kept([stream]):
        assert begun.wait(DEADLINE_SECONDS)
    assert [line["event"].partition(" that")[0] for line in logs] == ["stopped within a batch"]
    assert stream.query.exception() is None
    assert uncaught.errors == []


def payloads(settings: LakeSettings, name: str) -> list[bytes]:
    table = DeltaTable(settings.table_path("bronze", name)).to_pyarrow_table()
    return sorted(table["payload"].to_pylist())


def planners() -> set[int]:
    """Return the child processes that plan the batches of `format("pulsar")`."""
    found = set()
    for process in psutil.Process().children(recursive=True):
        with suppress(psutil.Error):  # it has ended
            if any("python_streaming_source_runner" in part for part in process.cmdline()):
                found.add(process.pid)
    return found


def test_a_stream_whose_planner_was_killed_lands_the_rest(
    spark: SparkSession, broker: Broker, settings: LakeSettings
) -> None:
    own = {"trigger": "0 seconds", "restarts": 1, "restart_delay": 0.01}
    topic = LiveTopic(settings.model_copy(update=own), "o", 1)
    first, rest = ([Outgoing(b"%d" % n) for n in each] for each in (range(5), range(5, 9)))
    before = planners()
    with capture_logs() as logs, kept(ingest(spark, Lake(topic.settings, topic.topics))):
        topic.send(first)
        until(lambda: len(payloads(topic.settings, "o")) == 5, "the first messages")
        [planner] = planners() - before
        os.kill(planner, signal.SIGKILL)
        topic.send(rest)
        until(lambda: len(payloads(topic.settings, "o")) >= 9, "the other messages")
    assert payloads(topic.settings, "o") == [message.payload for message in first + rest]
    assert [line["restart"] for line in logs if "restart" in line] == ["1 of 1"]


def test_a_repeated_batch_says_nothing_about_waiting_messages(
    spark: SparkSession, broker: Broker, settings: LakeSettings
) -> None:
    topic = LiveTopic(settings.model_copy(update={"trigger": "0 seconds"}), "o", 1)

    def begin() -> Stream:
        [stream] = ingest(spark, Lake(topic.settings, topic.topics))
        until(lambda: stream.has_looked, "the first look of the stream")
        return stream

    topic.send([Outgoing(b"1")])
    stream = begin()
    assert stream.last_read()
    stream.stop()
    assert stream.has_looked  # because it is not running
    commits = Path(topic.settings.checkpoint_path("bronze.o")) / "commits"
    (commits / str(newest_batch(topic.settings, "bronze.o"))).unlink()  # as a kill leaves it

    stream = begin()
    repeated = [each["numInputRows"] for each in stream.query.recentProgress]
    assert repeated[0] > 0
    assert stream.last_read() == ""
    topic.send([Outgoing(b"2")])
    until(lambda: bool(stream.last_read()), "the second message")
    stream.stop()
    assert payloads(topic.settings, "o") == [b"1", b"2"]


def test_a_poisoned_topic_does_not_keep_the_others_from_landing(
    spark: SparkSession, broker: Broker, settings: LakeSettings
) -> None:
    good, poisoned = (LiveTopic(settings, name, 1) for name in ("good", "poisoned"))
    topics = TopicFile(topics={**events("poisoned").topics, **events("good").topics})

    def land() -> None:
        await_streams(ingest(spark, Lake(settings, topics), available_now=True))

    for topic in (good, poisoned):
        topic.send([Outgoing(b"1")])
    land()
    poisoned.delete()
    poisoned.create(1)
    for topic in (good, poisoned):
        topic.send([Outgoing(b"2")])
    with pytest.raises(LakehouseError, match="The query bronze.poisoned failed: .*created again"):
        land()
    assert payloads(settings, "good") == [b"1", b"2"]
    assert payloads(settings, "poisoned") == [b"1"]
    found = given_up(settings, "bronze.poisoned")
    assert found is not None
    assert "created again" in found.reason
    assert given_up(settings, "bronze.good") is None
    (Path(settings.checkpoint_path("bronze.poisoned")) / "lakehouse.json").write_text("{}")
    good.send([Outgoing(b"3")])
    with pytest.raises(CheckpointError, match="is new, but the table bronze.poisoned"):
        land()
    assert payloads(settings, "good") == [b"1", b"2", b"3"]
    assert json.loads((Path(settings.checkpoint_path("bronze.poisoned")) / GIVEN_UP).read_text())[
        "reason"
    ].startswith("Checkpoint")


def test_a_sigterm_lets_the_current_batch_finish_and_no_other_begin(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = SilverLake(spark, tmp_path)
    lines = [message("orders", n, n, order(n, 0, 1, 1)) for n in range(2)]
    lake.put(lines[:1])
    original: Callable[..., None] = Refinery.refine
    told, end = Event(), Batches.end

    def tell(self: Batches, query: StreamingQuery) -> None:
        end(self, query)
        told.set()

    def slow(self: Refinery, batch: DataFrame, span: BatchSpan) -> None:
        lake.put(lines[1:])
        os.kill(os.getpid(), signal.SIGTERM)
        assert told.wait(DEADLINE_SECONDS)
        original(self, batch, span)

    monkeypatch.setattr(Batches, "end", tell)
    monkeypatch.setattr(Refinery, "refine", slow)
    await_streams(refine(spark, lake.lake))
    assert list(lake.enriched()) == [(0, 0)]
    monkeypatch.setattr(Refinery, "refine", original)
    lake.refine()
    assert sorted(lake.enriched()) == [(0, 0), (1, 0)]
