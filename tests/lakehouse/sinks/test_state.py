"""Tests what status, doctor and metrics say about a sink to a database."""

from pathlib import Path

import pyarrow as pa
import pytest
from exported import VARIABLE, Exported
from postgres_server import PASSWORD, PostgresServer

from lakehouse.operate.doctor import sink as examine
from lakehouse.operate.status import lake_status
from lakehouse.sinks.metrics import sink_collector
from lakehouse.sinks.state import sink_states

COPY = "export.copy"


def noted(sink: Exported) -> str:
    [line] = [line for line in lake_status(sink.lake) if line.table == COPY]
    return line.note


def found(sink: Exported) -> list[tuple[str, str]]:
    [state] = sink_states(sink.lake)
    return [(each.state, each.found) for each in examine(sink.lake, state)]


def measured(sink: Exported) -> dict[str, float]:
    families = sink_collector(sink.lake).collect()
    samples = [sample for family in families for sample in family.samples]
    return {s.name: s.value for s in samples if s.labels.get("sink") == COPY}


def test_status_says_what_is_sent_refused_and_why_nothing_is_sent(
    postgres: PostgresServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink = Exported(tmp_path, postgres.create_database())
    assert noted(sink) == "waits for the table gold.source"
    assert found(sink) == [("warn", "waits for the table gold.source")]
    sink.write(pa.table({"id": [1, 2], "name": ["a", "b\0"]}))
    assert noted(sink) == "has sent nothing yet"
    assert measured(sink) == {}
    sink.export()
    assert noted(sink) == "up to date; 1 rows refused"
    assert found(sink) == [("warn", "the database refuses 1 rows")]
    sink.write(pa.table({"id": [3], "name": ["c"]}))
    sink.delta.optimize.compact()  # changes no rows
    sink.merge(pa.table({"id": [2], "name": ["b"]}))
    assert noted(sink) == "2 versions to send; 1 rows refused"
    assert measured(sink) == {
        "lakehouse_sink_unsent_versions": 2.0,
        "lakehouse_refused_rows": 1.0,
    }
    sink.export()
    assert noted(sink) == "up to date"
    assert found(sink) == [("ok", "up to date")]
    monkeypatch.setenv(VARIABLE, f"postgresql://u:{PASSWORD}@127.0.0.1:1/db")
    assert "no connection to 127.0.0.1:1/db" in noted(sink)
    assert PASSWORD not in noted(sink)
    [(state, _)] = found(sink)
    assert state == "fail"
