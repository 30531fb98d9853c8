"""Tests the lineage events of a build of gold. Those of its models are tested with a real build."""

import datetime as dt
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from collector import Collector, collecting

from gold.lineage_events import JOB, GoldRun
from gold.tables import GoldSnapshot
from lake.observe.lineage_events import the_emitter
from lake.settings.settings import load_settings
from lake.tables.lake import Lake

SNAPSHOT = GoldSnapshot(
    dt.datetime(2026, 1, 1, tzinfo=dt.timezone.utc), 7, {"sales": 3}, {"sales": 5}, {}, "checksum"
)


@pytest.fixture
def collector() -> Iterator[Collector]:
    with collecting() as running:
        yield running


@pytest.fixture
def run(collector: Collector, tmp_path: Path) -> GoldRun:
    return GoldRun(Lake(load_settings(home=tmp_path, lineage=True)), the_emitter())


def names(event: dict[str, Any], side: str) -> list[str]:
    return [Path(each["name"]).parent.name + "." + Path(each["name"]).name for each in event[side]]


def test_a_published_build_reads_the_built_tables_and_writes_the_marts(
    run: GoldRun, collector: Collector
) -> None:
    run.started()
    run.completed(SNAPSHOT)
    begun, done = collector.of(JOB)
    assert (begun["eventType"], done["eventType"]) == ("START", "COMPLETE")
    assert begun["run"]["runId"] == done["run"]["runId"]
    assert (names(begun, "inputs"), names(begun, "outputs")) == ([], [])
    assert (names(done, "inputs"), names(done, "outputs")) == (["gold_build.sales"], ["gold.sales"])
    assert done["outputs"][0]["facets"]["version"]["datasetVersion"] == "3"
    kind = done["job"]["facets"]["jobType"]
    assert (kind["processingType"], kind["integration"]) == ("BATCH", "DBT")


def test_a_part_of_a_build_publishes_nothing(run: GoldRun, collector: Collector) -> None:
    run.completed(None)
    [done] = collector.of(JOB)
    assert (done["eventType"], done["inputs"], done["outputs"]) == ("COMPLETE", [], [])


def test_a_build_without_artifacts_reports_no_models(
    run: GoldRun, collector: Collector, tmp_path: Path
) -> None:
    run.models(tmp_path)
    run.failed("dbt did not run: password=secret")
    [failed] = collector.of(JOB)
    said = failed["run"]["facets"]["errorMessage"]["message"]
    assert (failed["eventType"], said) == ("FAIL", "dbt did not run: password=***")
