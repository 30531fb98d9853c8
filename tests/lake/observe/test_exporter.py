"""Tests that metrics are read rarely enough, and that a failure does not hide other layers."""

import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from prometheus_client.core import GaugeMetricFamily, Metric
from structlog.testing import capture_logs

from lake.observe import exporter
from lake.observe.exporter import REST, LayerCollector, serving
from lake.settings.settings import load_settings
from lakehouse.runtime.ports import free_port
from pulsar_spark.errors import SettingsError


class Clock:
    """A clock that advances by two seconds with each read of a lake."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.reads = 0

    def monotonic(self) -> float:
        return self.now

    def read(self) -> Iterator[Metric]:
        self.now += 2
        self.reads += 1
        yield GaugeMetricFamily("lakehouse_reads", "Reads of the lake", self.reads)


def values(collector: LayerCollector) -> dict[str, float]:
    return {sample.name: sample.value for each in collector.collect() for sample in each.samples}


def test_a_slow_read_is_repeated_only_after_a_long_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    monkeypatch.setattr(exporter, "time", clock)
    collector = LayerCollector("silver", clock.read)
    first = {"lakehouse_reads": 1.0, "lakehouse_collector_up": 1.0}
    assert (values(collector), values(collector), clock.reads) == (first, first, 1)
    clock.now += 2 * REST
    assert values(collector)["lakehouse_reads"] == 2


def test_a_layer_that_cannot_be_read_is_reported_as_down() -> None:
    def fail() -> Iterator[Metric]:
        yield GaugeMetricFamily("lakehouse_reads", "Reads of the lake", 1)
        message = "no broker"
        raise OSError(message)

    with capture_logs() as logs:
        assert values(LayerCollector("bronze", fail)) == {"lakehouse_collector_up": 0.0}
    assert [(line["layer"], line["why"]) for line in logs] == [("bronze", "OSError: no broker")]


def test_metrics_are_served_during_the_block_and_a_port_in_use_is_refused(tmp_path: Path) -> None:
    settings = load_settings(home=tmp_path, metrics_port=free_port())
    place = f"http://{settings.metrics_host}:{settings.metrics_port}/metrics"
    with serving(settings, LayerCollector("silver", Clock().read)):
        with urllib.request.urlopen(place, timeout=30) as answer:
            assert b"lakehouse_reads 1.0" in answer.read()
        with pytest.raises(SettingsError, match="cannot be served.*LAKEHOUSE_METRICS_PORT"):
            serving(settings).__enter__()
    with serving(settings):  # the port is free again
        pass
