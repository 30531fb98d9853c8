"""The metrics of sinks that are read on request: from checkpoints, tables and databases."""

from collections.abc import Iterator

from prometheus_client.core import Metric as Family

from lake.observe import metrics
from lake.observe.exporter import LayerCollector
from lake.tables.lake import Lake
from lakehouse.sinks.state import sink_states


def sink_collector(lake: Lake) -> LayerCollector:
    """The collector of the metrics of sinks."""

    def read() -> Iterator[Family]:
        states = sink_states(lake)
        yield metrics.UNSENT.of({(s.name,): s.unsent for s in states if s.unsent is not None})
        yield metrics.REFUSED.of({(s.name,): s.refused for s in states if s.refused is not None})

    return LayerCollector("sinks", read)
