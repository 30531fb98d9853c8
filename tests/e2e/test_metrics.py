"""Tests the values of /metrics for real streams, and the settings of its server."""

import datetime as dt
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from deltalake.exceptions import DeltaError
from live_shop import kept, until
from messages import item, order, user
from prometheus_client.core import Metric as Family
from prometheus_client.parser import text_string_to_metric_families
from pyspark.sql import SparkSession
from shop_lake import ShopLake

from bronze.metrics import bronze_collector
from gold.metrics import gold_collector
from gold.tables import CUTS, RUNS
from lake.observe import exporter, metrics
from lake.observe.exporter import LayerCollector, serving
from lake.settings.settings import LakeSettings, load_settings
from lake.tables.arrow import NewRows
from lake.tables.lake import Lake
from lake.tables.spec import TableSpec
from lakehouse.messages.publish import create_topics
from lakehouse.operate.status import lake_status
from lakehouse.runtime.broker import Broker
from lakehouse.runtime.ports import free_port
from lakehouse.up import bronze_streams, let_changelogs_land
from pulsar_spark.errors import SettingsError
from silver.contract.tables import CUTS as SILVER_CUTS
from silver.metrics import silver_collector
from silver.refine import refine

OPERATIONS = Path(__file__).parents[2] / "docs" / "operations.md"
Samples = dict[tuple[str, tuple[str, ...]], float]


def scrape(settings: LakeSettings) -> Samples:
    """Return values by metric and labels; labels are in the order that the metric declares."""
    answer = httpx.get(f"http://{settings.metrics_host}:{settings.metrics_port}/metrics")
    assert answer.status_code == 200
    found: Samples = {}
    for family in text_string_to_metric_families(answer.text):
        for sample in family.samples:
            metric = metrics.METRICS.get(sample.name)
            labels = metric.labels if metric else sample.labels
            found[sample.name, tuple(sample.labels[label] for label in labels)] = sample.value
    return found


@pytest.fixture
def served(settings: LakeSettings, monkeypatch: pytest.MonkeyPatch) -> LakeSettings:
    """A separate lake with a metrics port; nothing is cached between requests."""
    monkeypatch.setattr(exporter, "REST", 0)
    return settings.model_copy(update={"metrics_port": free_port()})


def test_metrics_of_real_streams_match_the_lake(
    spark: SparkSession, broker: Broker, served: LakeSettings
) -> None:
    lake = ShopLake(spark, served)
    create_topics(lake.lake)
    begun = time.time()
    lake.send("users", [(1, user(1)), (1, user(1, lastName="later")), (2, user(2))])
    lake.send("items", [(1, item(1))])
    layers = [make(lake.lake) for make in (bronze_collector, silver_collector, gold_collector)]

    def seen(metric: metrics.Metric, *labels: str) -> float | None:
        return scrape(served).get((metric.name, labels))

    with serving(served, *layers):
        before = scrape(served)  # counts of other tests in this process
        with bronze_streams(spark, lake.lake) as started:
            let_changelogs_land(started, lake.lake.topics)
            started += refine(spark, lake.lake)
            with kept(started):
                until(lambda: seen(metrics.REFINED, "users", "applied") == 2, "the users")
                until(lambda: seen(metrics.REFINED, "items", "applied") == 1, "the item")
                orders = [order(1, 1, 1, 1), order(1, 2, 99, 1), b"{"]
                lake.send("orders", [(1, payload) for payload in orders])
                until(lambda: seen(metrics.REFINED, "orders", "quarantined") == 1, "the orders")
                until(lambda: seen(metrics.LAG, "orders") == 0, "no lag")
                until(
                    lambda: seen(metrics.REFINED, "orders", "applied") == 2, "the batch of orders"
                )
                running = scrape(served)
        metrics.restarted("silver")
        lake.send("orders", [(key, order(2, key, 1, 1)) for key in range(5)])
        until(lambda: seen(metrics.LAG, "orders") == 5, "a lag of five orders that nothing lands")
        until(lambda: seen(metrics.RUNNING, "silver") == 0, "the end of silver")
        stopped = scrape(served)

    def value(metric: metrics.Metric, *labels: str) -> float:
        return running[metric.name, labels]

    def since(name: str, labels: tuple[str, ...], found: Samples = running) -> float:
        return found[name, labels] - before.get((name, labels), 0)

    def by_label(metric: metrics.Metric, found: Samples = running) -> dict[tuple[str, ...], float]:
        return {labels: number for (name, labels), number in found.items() if name == metric.name}

    assert by_label(metrics.LANDED) == {("users",): 3, ("items",): 1, ("orders",): 3}
    assert by_label(metrics.REFINED) == {
        **{("users", "applied"): 2, ("users", "superseded"): 1, ("users", "quarantined"): 0},
        **{("items", "applied"): 1, ("items", "superseded"): 0, ("items", "quarantined"): 0},
        **{("orders", "applied"): 2, ("orders", "superseded"): 0, ("orders", "quarantined"): 1},
    }
    assert by_label(metrics.WAITED) == {("users",): 0, ("items",): 0, ("orders",): 1}
    assert by_label(metrics.MISSING) == {("user",): 1, ("item",): 0}
    assert by_label(metrics.QUARANTINE) == {("users",): 0, ("items",): 0, ("orders",): 1}
    assert set(by_label(metrics.UNREFINED).values()) == {0}
    assert by_label(metrics.COLLECTOR_UP) == {("bronze",): 1, ("silver",): 1, ("gold",): 1}
    assert value(metrics.BROKER_UP) == 1
    assert value(metrics.TABLE_ROWS, "silver.enriched_orders") == 2
    assert value(metrics.TABLE_BYTES, "silver.users_state") > 0
    for topic in lake.topics.topics:
        newest = value(metrics.LANDED_MESSAGE, topic)
        assert begun - 1 < newest < value(metrics.REFINED_AT) < time.time()
        assert value(metrics.REFINED_MESSAGE, topic) == newest
    latency = metrics.PUBLISH_TO_SILVER.name
    assert since(f"{latency}_count", ("users",)) == 1
    assert 0 < since(f"{latency}_sum", ("users",)) < time.time() - begun

    queries = {*(f"bronze.{name}" for name in lake.topics.topics), "silver"}
    for query in queries:
        assert value(metrics.RUNNING, query) == 1
        assert since(metrics.RESTARTS.name, (query,)) == 0
        assert begun < value(metrics.PROGRESS_AT, query) < time.time()
        assert since(f"{metrics.BATCH_SECONDS.name}_count", (query,)) >= 1
        whole = since(f"{metrics.BATCH_SECONDS.name}_sum", (query,))
        assert 0 < since(metrics.PHASE_SECONDS.name, (query, "addBatch")) < whole

    assert by_label(metrics.RUNNING, stopped) == dict.fromkeys([(q,) for q in queries], 0)
    assert since(metrics.RESTARTS.name, ("silver",), stopped) == 1
    waiting = by_label(metrics.LAG_ENTRIES, stopped)
    assert sum(n for (topic, _), n in waiting.items() if topic == "orders") == 5
    assert {partition for topic, partition in waiting if topic == "orders"} == set("0123")
    there = by_label(metrics.LANDED_ENTRIES, stopped)
    assert sum(n for (topic, _), n in there.items() if topic == "orders") == 3

    lines = {line.table: line for line in lake_status(lake.lake)}
    assert lines["bronze.orders"].lag_messages == 5
    tables = ("bronze.orders", "silver.users", "silver.enriched_orders", "silver.missing_user")
    assert [lines[name].rows for name in tables] == [3, 2, 2, 1]
    booked = lines["silver.reconciliation"].note
    assert booked == "7 in = 5 applied + 1 superseded + 1 quarantined"
    first = lake.rows("reconciliation", "silver_batch = 0 and messages_in > 0")
    landed = {row["topic"]: row["messages_in"] for row in first}
    assert landed == {"users": 3, "items": 1}  # silver did not begin before them
    newest = lines["silver.users"].newest
    assert newest is not None
    assert newest.timestamp() == value(metrics.LANDED_MESSAGE, "users")

    [heavy] = re.findall(r'sql "(select key.*)"', OPERATIONS.read_text())
    path = served.table_path("bronze", "orders")
    assert spark.sql(heavy.replace("bronze.orders", f"delta.`{path}`")).collect() == [("1", 3)]


def write(settings: LakeSettings, table: TableSpec, *rows: dict[str, Any]) -> None:
    write_deltalake(
        Lake(settings).table(table).path, pa.Table.from_pylist(list(rows)), mode="append"
    )


def test_metrics_of_gold_come_from_its_tables_and_each_look_reads_only_new_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exporter, "REST", 0)
    settings, at = load_settings(home=tmp_path), dt.datetime(2026, 1, 1, tzinfo=dt.timezone.utc)
    collector = gold_collector(Lake(settings))

    def look() -> dict[str, dict[tuple[str, ...], float]]:
        return {
            family.name: {tuple(s.labels.values()): s.value for s in family.samples}
            for family in collector.collect()
        }

    assert look() == {"lakehouse_collector_up": {("gold",): 1}}, "there is no lake yet"

    def run(seconds: float, outcome: str) -> None:
        begun = {"started_at": at + dt.timedelta(seconds=seconds), "outcome": outcome}
        write(settings, RUNS, begun, begun)

    def cut(seconds: float, batch: int) -> None:
        published = at + dt.timedelta(seconds=seconds)
        write(settings, CUTS, {"published_at": published, "silver_batch": batch})

    for batch in range(3):
        write(settings, SILVER_CUTS, {"silver_batch": batch})
    run(1, "failed")
    cut(17.5, 1)
    run(10, "published")
    assert look() == {
        "lakehouse_gold_builds": {("published",): 1, ("tested",): 0, ("failed",): 1},
        "lakehouse_gold_published_timestamp_seconds": {(): at.timestamp() + 17.5},
        "lakehouse_gold_unpublished_batches": {(): 1},
        "lakehouse_gold_build_seconds": {(): 7.5},
        "lakehouse_collector_up": {("gold",): 1},
    }
    write(settings, SILVER_CUTS, {"silver_batch": 7})
    cut(40, 5)  # its run is not noted yet
    found = look()
    assert found["lakehouse_gold_build_seconds"] == {(): 7.5}
    assert found["lakehouse_gold_unpublished_batches"] == {(): 2}
    run(30, "published")
    found = look()
    assert found["lakehouse_gold_build_seconds"] == {(): 10}
    assert found["lakehouse_gold_builds"][("published",)] == 2


def test_new_rows_are_read_once_and_all_rows_again_after_a_rewrite(
    tmp_path: Path,
) -> None:
    settings = load_settings(home=tmp_path)
    for batch in (0, 1):
        write(settings, SILVER_CUTS, {"silver_batch": batch})
    table = Lake(settings).table(SILVER_CUTS)
    new = NewRows(("silver_batch",), "silver_batch")

    def look() -> tuple[list[int], bool]:
        rows, is_all = new.read(table.arrow)
        return sorted(rows["silver_batch"].to_pylist()), is_all

    assert look() == ([0, 1], True)
    assert look() == ([], False)
    write(settings, SILVER_CUTS, {"silver_batch": 2})
    assert look() == ([2], False)
    DeltaTable(Lake(settings).table(SILVER_CUTS).path).optimize.compact()
    assert look() == ([], False), "a compaction adds no rows"
    write(settings, SILVER_CUTS, {"silver_batch": -1})  # like a decision about the quarantine
    assert look() == ([-1, 0, 1, 2], True)
    DeltaTable(Lake(settings).table(SILVER_CUTS).path).delete(
        "silver_batch > 0"
    )  # like a restored savepoint
    assert look() == ([-1, 0], True)
    write(settings, SILVER_CUTS, {"silver_batch": 1})
    assert look() == ([1], False)


def test_an_unreadable_layer_does_not_hide_the_metrics_of_others(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    settings = load_settings(home=tmp_path, metrics_port=free_port())

    def fails() -> Iterator[Family]:
        yield metrics.BROKER_UP.of({(): 1})
        message = "no log"
        raise DeltaError(message)

    good = LayerCollector("good", lambda: [metrics.UNPUBLISHED.of({(): 3})])
    with serving(settings, LayerCollector("bad", fails), good):
        found = scrape(settings)
    assert found[metrics.COLLECTOR_UP.name, ("bad",)] == 0
    assert found[metrics.COLLECTOR_UP.name, ("good",)] == 1
    assert found[metrics.UNPUBLISHED.name, ()] == 3
    assert (metrics.BROKER_UP.name, ()) not in found
    assert "DeltaError: no log" in "".join(capsys.readouterr())


def test_the_result_of_a_slow_look_is_reused_for_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    now, looks = [100.0], []

    def slow() -> list[Family]:
        looks.append(now[0])
        now[0] += 2
        return []

    monkeypatch.setattr("lake.observe.exporter.time.monotonic", lambda: now[0])
    collector = LayerCollector("slow", slow)
    for moment in (100.0, 103.0, 139.0, 141.0):
        now[0] = moment
        collector.collect()
    assert looks == [100.0, 141.0]


def test_metrics_are_served_on_loopback_and_only_if_a_port_is_set(
    tmp_path: Path,
) -> None:
    port = free_port()
    with serving(load_settings(home=tmp_path)), pytest.raises(httpx.ConnectError):
        httpx.get(f"http://127.0.0.1:{port}/metrics")
    settings = load_settings(home=tmp_path, metrics_port=port)
    assert settings.metrics_host == "127.0.0.1"
    with serving(settings):
        assert scrape(settings)
        with pytest.raises(SettingsError, match=rf"127.0.0.1:{port} .*LAKEHOUSE_METRICS_PORT"):
            serving(settings).__enter__()
        with pytest.raises(SettingsError, match="LAKEHOUSE_METRICS_HOST"):
            serving(
                settings.model_copy(update={"metrics_host": "no.such.host.invalid"})
            ).__enter__()
    with pytest.raises(httpx.ConnectError):
        scrape(settings)


def test_names_and_units_follow_prometheus_conventions() -> None:
    for name, metric in metrics.METRICS.items():
        assert re.fullmatch(r"lakehouse_[a-z_]+", name)
        assert metric.meaning, name
        assert not re.search(r"_(ms|millis|minutes|hours|kb|mb|percent)\b", name)
        if metric.buckets or "timestamp" in name:
            assert name.endswith("_seconds")
