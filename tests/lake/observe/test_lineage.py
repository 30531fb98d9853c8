"""Tests the lineage events of a stream for every outcome, and without a collector."""

import sys
import uuid
from collections.abc import Iterator
from pathlib import Path
from threading import Event
from typing import Any

import pyarrow as pa
import pytest
from collector import Collector, collecting, forget_configuration
from deltalake import write_deltalake
from structlog.testing import capture_logs

from lake.observe.lineage import Flow, StreamRuns, emitter, table_place
from lake.observe.lineage_events import MOST_WAITING, the_emitter
from lake.settings.settings import LakeSettings, load_settings
from lake.streams.batches import Batches
from lake.streams.checkpoint import Running, claim
from lake.streams.supervisor import Stream
from lake.tables.lake import Lake
from lake.tables.spec import TableSpec
from lake.tables.storage import storage_options
from pulsar_spark.errors import LakehouseError, SettingsError
from pulsar_spark.log_masking import hide
from pulsar_spark.schema import Column

TABLE = TableSpec("bronze", "o", "Of a test", (Column("id", "bigint", "An id"),))
ONCE = {
    "OPENLINEAGE__TRANSPORT__TYPE": "http",
    "OPENLINEAGE__TRANSPORT__RETRY": '{"total": 0}',
}


class Query:
    """A query that has ended."""

    isActive = False

    def __init__(self, error: Exception | None = None) -> None:
        self.runId = uuid.uuid4()
        self._error = error

    def exception(self) -> Exception | None:
        return self._error

    def stop(self) -> None:
        """Do nothing: the query has ended already."""


@pytest.fixture
def settings(tmp_path: Path) -> LakeSettings:
    return load_settings(
        home=tmp_path, lineage=True, lineage_seconds=0, restarts=1, restart_delay=0.001
    )


@pytest.fixture
def collector() -> Iterator[Collector]:
    with collecting() as running:
        yield running


def flow(settings: LakeSettings) -> Flow:
    return Flow((), (table_place(settings, Lake(settings).table(TABLE)),))


def write(settings: LakeSettings, count: int) -> None:
    rows = pa.table({"id": list(range(count))})
    options = storage_options(settings)
    write_deltalake(Lake(settings).table(TABLE).path, rows, mode="append", storage_options=options)


def states(collector: Collector) -> list[str]:
    return [event["eventType"] for event in collector.of("bronze.o")]


def rows(event: dict[str, Any]) -> int:
    [output] = event["outputs"]
    return int(output["outputFacets"]["outputStatistics"]["rowCount"])


@pytest.mark.parametrize("place", ["settings", "bucket"])
def test_each_run_is_reported_with_what_it_wrote(
    place: str, collector: Collector, request: pytest.FixtureRequest
) -> None:
    settings: LakeSettings = request.getfixturevalue(place)
    told = StreamRuns(settings, "bronze.o", flow(settings))
    write(settings, 5)
    for _ in range(2):
        told.begin()
        told.started(Query())  # type: ignore[arg-type]
        told.look()  # there is nothing to report
        write(settings, 2)
        # Inserts a row in the first run, and updates it in the second.
        Lake(settings).table(TABLE).arrow.upsert(pa.table({"id": [77]}), ["id"])
        told.look()
        write(settings, 4)
        told.ended("COMPLETE")
        told.ended("ABORT")  # it has ended already
    assert states(collector) == 2 * ["START", "RUNNING", "COMPLETE"]
    events = collector.of("bronze.o")
    assert [rows(event) for event in events if event["eventType"] != "START"] == [3, 7, 3, 7]
    assert len({event["run"]["runId"] for event in events}) == 2
    [output] = events[0]["outputs"]
    called = output["namespace"].replace("file", "") + "/" + output["name"]
    assert called.replace("//", "/") == Lake(settings).table(TABLE).path.replace("//", "/")
    assert output["namespace"] == ("file" if place == "settings" else "s3://lake")


def test_a_failure_is_reported_with_its_reason_and_without_secrets(
    settings: LakeSettings, collector: Collector
) -> None:
    secret = hide("hunter-2-secret")
    error = RuntimeError(f"No answer to {secret}.")
    queries = [Query(error), Query(error)]

    def start() -> Running:
        return Running(queries.pop(), claim(settings, "bronze.o"), Batches(print))  # type: ignore[arg-type]

    with pytest.raises(LakehouseError, match="No answer"):
        Stream("bronze.o", settings, start, available_now=False, flow=flow(settings)).begin().keep(
            Event()
        )
    assert states(collector) == 2 * ["START", "FAIL"]
    failed = collector.of("bronze.o")[-1]
    assert failed["run"]["facets"]["errorMessage"]["message"] == "No answer to ***."


def test_a_stream_that_cannot_be_started_is_reported_as_failed(
    settings: LakeSettings, collector: Collector
) -> None:
    def start() -> Running:
        message = "Not with this table."
        raise SettingsError(message)

    with pytest.raises(SettingsError):
        Stream("bronze.o", settings, start, available_now=False, flow=flow(settings)).begin().keep(
            Event()
        )
    assert states(collector) == ["START", "FAIL"]


def test_a_stream_that_is_stopped_at_once_is_reported_as_aborted(
    settings: LakeSettings, collector: Collector
) -> None:
    def start() -> Running:
        return Running(Query(), claim(settings, "bronze.o"), Batches(print))  # type: ignore[arg-type]

    stream = Stream("bronze.o", settings, start, available_now=False, flow=flow(settings))
    stream.begin().stop()
    assert states(collector) == ["START", "ABORT"]


def test_a_refusing_collector_is_logged_once_and_stops_nothing(settings: LakeSettings) -> None:
    with collecting(**ONCE) as collector, capture_logs() as logs:
        told = StreamRuns(settings, "bronze.o", flow(settings))
        collector.answer = 503
        for _ in range(3):
            told.begin()
            told.started(Query())  # type: ignore[arg-type]
            told.ended("COMPLETE")
        assert states(collector) == []
        collector.answer = 201
        told.started(Query())  # type: ignore[arg-type]
        assert states(collector) == ["START"]
    assert [line["event"] for line in logs] == ["lineage is not sent", "lineage is sent again"]
    assert logs[1]["lost"] == 6


def test_events_beyond_the_queue_limit_are_dropped(settings: LakeSettings) -> None:
    held = Event()
    with collecting(**ONCE) as collector, capture_logs() as logs:
        sender = the_emitter()
        sender._client.transport.emit = lambda _: held.wait(60)  # type: ignore[assignment]  # noqa: SLF001
        told = StreamRuns(settings, "bronze.o", flow(settings))
        for _ in range(MOST_WAITING + 2):  # one of them is being sent
            told.started(Query())  # type: ignore[arg-type]
        assert [line["event"] for line in logs] == ["lineage is not sent"]
        held.set()
        assert states(collector) == []


def test_a_parent_run_is_set_as_openlineage_specifies(settings: LakeSettings) -> None:
    run = str(uuid.uuid4())
    with collecting(OPENLINEAGE_PARENT_ID=f"airflow/shop.stream/{run}") as collector:
        StreamRuns(settings, "bronze.o", flow(settings)).started(Query())  # type: ignore[arg-type]
        [event] = collector.of("bronze.o")
    parent = event["run"]["facets"]["parent"]
    assert parent["run"]["runId"] == run
    assert (parent["job"]["namespace"], parent["job"]["name"]) == ("airflow", "shop.stream")


@pytest.mark.parametrize(
    ("environment", "said"),
    [
        ({}, "events have no destination. Set OPENLINEAGE_URL"),
        ({"OPENLINEAGE__TRANSPORT__TYPE": "pigeon"}, "configuration is invalid: .*pigeon"),
        (
            {"OPENLINEAGE_URL": "http://127.0.0.1:1", "OPENLINEAGE_PARENT_ID": "a/b/c"},
            "configuration is invalid",
        ),
    ],
)
def test_lineage_that_cannot_be_sent_is_refused_at_startup(
    settings: LakeSettings,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    environment: dict[str, str],
    said: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    forget_configuration(monkeypatch)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(SettingsError, match=said):
        emitter(settings)


def test_a_missing_extra_is_reported(
    settings: LakeSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "lake.observe.lineage_events", None)
    with pytest.raises(SettingsError, match="Install the extra `lineage`"):
        emitter(settings)
    assert emitter(settings.model_copy(update={"lineage": False})) is None
