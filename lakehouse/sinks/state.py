"""How far the sinks of the topic file are. Needs no Spark."""

from __future__ import annotations

from dataclasses import dataclass

from lake.streams.checkpoint import last_commit, planned_offsets
from lake.streams.given_up import given_up
from lake.tables.lake import Lake
from lake.tables.table import Table
from lake.topics.sink import Export, Publish, Sink
from lake.topics.sink_source import source_of
from pulsar_spark.errors import LakehouseError

MOST_VERSIONS = 1000  # that are looked at; more are reported as this number
ANSWER_SECONDS = 3


@dataclass(frozen=True)
class SinkState:
    """The state of a sink.

    name: `publish.<name>` or `export.<name>`.
    unsent: number of versions with changes that it has not sent; None if that is not known.
    refused: number of rows that the database refuses now; None for a topic.
    problem: why the sink does not send; empty if it does, or if it has not been started.
    """

    name: str
    unsent: int | None = None
    refused: int | None = None
    problem: str = ""

    @property
    def note(self) -> str:
        """The state in a few words."""
        if self.problem:
            return self.problem
        if self.unsent is None:
            return "has sent nothing yet"
        behind = f"{self.unsent} versions to send" if self.unsent else "up to date"
        return f"{behind}; {self.refused} rows refused" if self.refused else behind


def sink_states(lake: Lake) -> list[SinkState]:
    """The state of each declared sink, in the order of the file."""
    return [
        *(_of_topic(lake, sink) for sink in lake.topics.publish.values()),
        *(_of_database(lake, sink) for sink in lake.topics.export.values()),
    ]


def _of_topic(lake: Lake, sink: Publish) -> SinkState:
    name = sink.label
    problem = _problem(lake, sink, name)
    commit = last_commit(lake.settings, name)
    if commit is None:
        return SinkState(name, problem=problem)
    offset = planned_offsets(lake.settings, name, int(commit.name)).get("0", {})
    # An index below 0 stands before the version, any other within it.
    sent = offset.get("reservoirVersion", 0) - (offset.get("index", -1) < 0)
    return SinkState(name, _unsent(_table(lake, sink), sent), None, problem)


def _of_database(lake: Lake, sink: Export) -> SinkState:
    from lakehouse.sinks.postgres.bookkeeping import Bookkeeping
    from lakehouse.sinks.postgres.database import connect, explained, require_driver

    name = sink.label
    problem = _problem(lake, sink, name)
    schema, _, table = sink.table.partition(".")
    try:
        require_driver()
        connection = connect(sink, connect_timeout=ANSWER_SECONDS)
        with explained(sink), connection:
            books = Bookkeeping(connection, schema, table)
            position = books.position() if books.exists() else None
    except LakehouseError as error:
        return SinkState(name, problem=problem or error.what)
    if position is None:
        return SinkState(name, problem=problem)
    unsent = _unsent(_table(lake, sink), position.version)
    return SinkState(name, unsent, position.refused, problem)


def _problem(lake: Lake, sink: Sink, name: str) -> str:
    stopped = given_up(lake.settings, name)
    if stopped is not None:
        return f"given up: {stopped.reason}"
    return (
        "" if _table(lake, sink).exists() else f"waits for the table {_table(lake, sink).full_name}"
    )


def _table(lake: Lake, sink: Sink) -> Table:
    source = source_of(lake.topics, sink)
    return lake.named(source.schema, source.table)


def _unsent(table: Table, sent: int) -> int:
    newest = table.newest_version()
    later = range(sent + 1, newest + 1)
    if len(later) > MOST_VERSIONS:
        return len(later)
    found = map(table.changes, later)
    return sum(changes is not None and changes.of_rows for changes in found)
