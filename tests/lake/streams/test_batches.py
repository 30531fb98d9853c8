"""Tests how a query ends between two batches, and which error of a batch is passed on."""

from collections.abc import Callable
from threading import Event

import pytest
from live_shop import DEADLINE_SECONDS
from pyspark.sql import DataFrame, SparkSession

from lake.settings.settings import LakeSettings
from lake.streams.checkpoint import BatchSpan, Running, claim, start_query
from lake.streams.supervisor import Stream
from pulsar_spark.errors import CheckpointError

RunBatch = Callable[[DataFrame, BatchSpan], None]


def stream_of(spark: SparkSession, settings: LakeSettings, run_batch: RunBatch) -> Stream:
    """Return a running stream of Spark's own rows, which always has another batch to run."""

    def start() -> Running:
        rows = spark.readStream.format("rate").option("rowsPerSecond", 1000).load()
        checkpoint = claim(settings, "bronze.o")
        return start_query(rows, run_batch, "0 seconds", checkpoint, available_now=False)

    return Stream("bronze.o", settings, start, available_now=False).begin()


def test_a_stop_lets_a_batch_finish_and_no_other_begins_until_the_next_start(
    spark: SparkSession, settings: LakeSettings
) -> None:
    begun: list[int] = []
    finished: list[int] = []
    for start in range(3):
        stop, batches = Event(), 2 * start + 2

        def run_batch(rows: DataFrame, span: BatchSpan) -> None:
            begun.append(span.id)
            rows.count()
            if len(begun) == batches:  # noqa: B023 - called in this turn of the loop only
                stop.set()  # noqa: B023
            finished.append(span.id)

        stream = stream_of(spark, settings, run_batch)
        stream.keep(stop)
        assert stream.query.exception() is None
        assert begun == finished
        assert begun == [*range(len(begun))]
        assert len(begun) >= batches


def test_an_error_of_our_own_keeps_its_class_and_attributes(
    spark: SparkSession, settings: LakeSettings
) -> None:
    error = CheckpointError("The table is another one.", "Restore it.")

    def run_batch(_: DataFrame, __: BatchSpan) -> None:
        raise error

    stream = stream_of(spark, settings, run_batch)
    with pytest.raises(CheckpointError) as raised:
        stream.keep(Event())
    assert raised.value is error


def test_a_batch_that_fails_during_a_stop_is_reported(
    spark: SparkSession, settings: LakeSettings
) -> None:
    stop, begun = Event(), Event()

    def run_batch(_: DataFrame, __: BatchSpan) -> None:
        begun.set()
        assert stop.wait(DEADLINE_SECONDS)
        message = "It does not add up."
        raise CheckpointError(message)

    stream = stream_of(spark, settings, run_batch)
    assert begun.wait(DEADLINE_SECONDS)
    stop.set()
    with pytest.raises(CheckpointError, match="does not add up"):
        stream.keep(stop)
