"""Tests that each batch of a stream is counted once, over several runs."""

from threading import Event

import pytest
from prometheus_client import REGISTRY
from pyspark.sql import DataFrame, SparkSession

from lake.observe import batch_metrics
from lake.settings.settings import LakeSettings
from lake.streams.checkpoint import BatchSpan, Running, claim, start_query
from lake.streams.supervisor import Stream

QUERY = "bronze.counted"


def sample(name: str, **labels: str) -> float:
    found = REGISTRY.get_sample_value(f"lakehouse_{name}", {"query": QUERY, **labels})
    assert found is not None
    return found


@pytest.mark.parametrize("pause", [60, pytest.param(0, marks=pytest.mark.nightly)])
def test_each_batch_is_counted_once_and_the_end_of_a_run_is_noted(
    spark: SparkSession, settings: LakeSettings, monkeypatch: pytest.MonkeyPatch, pause: float
) -> None:
    """With a long pause, all batches are counted when the run ends."""
    monkeypatch.setattr(batch_metrics, "PAUSE_SECONDS", pause)
    observed = settings.model_copy(update={"metrics_port": 1})
    before = REGISTRY.get_sample_value("lakehouse_batch_seconds_count", {"query": QUERY}) or 0
    finished = 0
    for _ in range(2):
        stop, of_run, running = Event(), [0], []

        def run_batch(rows: DataFrame, _: BatchSpan) -> None:
            rows.count()
            running.append(sample("stream_running"))  # noqa: B023 - called in this turn only
            of_run[0] += 1  # noqa: B023
            if of_run[0] == 4:  # noqa: B023
                stop.set()  # noqa: B023

        def start() -> Running:
            rows = spark.readStream.format("rate").option("rowsPerSecond", 1000).load()
            checkpoint = claim(observed, QUERY)
            return start_query(rows, run_batch, "0 seconds", checkpoint, available_now=False)

        Stream(QUERY, observed, start, available_now=False).begin().keep(stop)
        finished += of_run[0]
        assert running[-1] == 1
        assert sample("stream_running") == 0
        assert sample("batch_seconds_count") - before == finished
        assert sample("batch_phase_seconds_total", phase="addBatch") > 0
