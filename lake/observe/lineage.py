"""Reports to an OpenLineage collector which jobs read and write which topics and tables.

A stream is a job, and each start of its query is a run of that job. A run begins with a START event
and ends with COMPLETE (it has caught up or was stopped), FAIL, or ABORT (stopped within a batch).
RUNNING events in between report how many rows it has written. Lineage never stops or slows a
stream: a separate thread sends the events (`lineage_events.py`), and a collector that cannot be
reached is logged once.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Literal

import structlog
from deltalake import DeltaTable
from deltalake.exceptions import TableNotFoundError

from lake.settings.settings import LakeSettings
from lake.tables.lake import Lake
from lake.tables.storage import in_bucket, open_table
from lake.tables.table import Table
from lake.topics.topic import Topic
from pulsar_spark.errors import SettingsError

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

    from lake.observe.lineage_events import Emitter

State = Literal["START", "RUNNING", "COMPLETE", "ABORT", "FAIL"]

log = structlog.get_logger()

# For each operation of a commit: the metrics that count new or changed rows, named by Spark and by
# delta-rs.
ROWS_WRITTEN = {
    "WRITE": ("numOutputRows", "num_added_rows"),
    "STREAMING UPDATE": ("numOutputRows",),
    "MERGE": (
        *("numTargetRowsInserted", "numTargetRowsUpdated"),
        *("num_target_rows_inserted", "num_target_rows_updated"),
    ),
}


@dataclass(frozen=True)
class Place:
    """A topic or a table, named the same by every job, so that their graphs connect.

    columns: name, type and meaning of each column.
    alias: namespace and name under which SQL clients know the table.
    """

    namespace: str
    name: str
    comment: str = ""
    columns: tuple[tuple[str, str, str | None], ...] = ()
    alias: tuple[str, str] | None = None


def topic_places(lake: Lake, topic: Topic) -> tuple[Place, ...]:
    """The topics of a declaration, with its fields; a pattern is one place."""
    columns = tuple((name, spec.type, None) for name, spec in topic.fields.items())
    address = lake.address(topic.name)
    names = (address.pattern,) if address.pattern else address.names
    return tuple(replace(address_place(lake.settings, name), columns=columns) for name in names)


def address_place(settings: LakeSettings, address: str) -> Place:
    """A topic. OpenLineage defines no names for Pulsar, so these follow its rules for Kafka."""
    hosts = settings.pulsar_url.partition("://")[2]
    return Place(f"pulsar://{hosts}", address)


def table_place(settings: LakeSettings, table: Table) -> Place:
    """A table of the lake with its columns, named by its folder, or by its bucket and the path."""
    columns = tuple((column.name, column.type, column.comment) for column in table.spec.columns)
    place = table_at(settings, table)
    return replace(place, comment=table.spec.comment, columns=columns)


def table_at(settings: LakeSettings, table: Table) -> Place:
    """A table without a declared schema, such as those that dbt builds; named like the others."""
    endpoint = f"spark://{settings.sql_host}:{settings.sql_port}"  # the same as in dbt-ol
    path = PurePosixPath(table.path)
    namespace, place = "file", str(path)
    if in_bucket(settings):  # the parts are s3:, the bucket, and the path
        namespace, place = f"s3://{path.parts[1]}", "/".join(path.parts[2:])
    return Place(namespace, place, alias=(endpoint, table.full_name))


@dataclass(frozen=True)
class Flow:
    """The topics and tables that a stream reads, and those that it writes."""

    inputs: tuple[Place, ...]
    outputs: tuple[Place, ...]

    @property
    def tables(self) -> tuple[Place, ...]:
        """The tables of the lake that it writes, whose logs count the rows."""
        return tuple(place for place in self.outputs if place.alias is not None)


def emitter(settings: LakeSettings) -> Emitter | None:
    """The emitter of events; None if lineage is off.

    Raises:
        SettingsError: lineage is on, but OpenLineage is not installed or not configured.
    """
    if not settings.lineage:
        return None
    try:
        from lake.observe.lineage_events import the_emitter
    except ImportError as error:
        message = (
            "LAKEHOUSE_LINEAGE is on, but OpenLineage's packages are not installed. Install the "
            f"extra `lineage` (pip install 'orders-lakehouse[lineage]'), or switch it off: {error}."
        )
        raise SettingsError(message) from error
    return the_emitter()


@dataclass(frozen=True)
class StreamRun:
    """One run of a stream: its job, and the run id, which is also Spark's."""

    namespace: str
    job: str
    id: str
    flow: Flow


class StreamRuns:
    """Reports the runs of a stream, one after the other. Does nothing if lineage is off.

    `Stream` calls `begin`, `started`, `look` and `ended` in this order for each run. Without a
    `flow`, nothing is reported.

    Raises:
        SettingsError: lineage is on, but OpenLineage is not installed or not configured.
    """

    def __init__(self, settings: LakeSettings, job: str, flow: Flow | None) -> None:
        self._namespace = settings.lineage_namespace
        self._pause = settings.lineage_seconds
        self._job = job
        self._flow = flow or Flow((), ())
        self._emitter = emitter(settings) if flow else None
        self._run: StreamRun | None = None
        self._settings = settings
        self._seen: dict[str, int] = {}  # by table: the last version whose rows are counted
        self._written: dict[str, int] = {}  # by table: rows since the run began
        self._due = 0.0

    def begin(self) -> None:
        """Note the versions of the tables. Called before the query starts to write."""
        if self._emitter:
            with no_matter_what():
                tables = self._flow.tables
                self._seen = {table.name: _version(self._settings, table) for table in tables}
                self._written = dict.fromkeys(self._seen, 0)

    def started(self, query: StreamingQuery) -> None:
        """Report START. Called when the query has started."""
        if self._emitter:
            self._tell_start(str(query.runId))

    def look(self) -> None:
        """Report the rows written so far, if it is time to. Called repeatedly during the run."""
        if self._emitter and self._run and time.monotonic() >= self._due:
            with no_matter_what():
                self._due = time.monotonic() + self._pause
                if self._count():
                    self._emit("RUNNING")

    def ended(self, state: State, error: str | None = None) -> None:
        """Report how the run has ended. A query that could not start counts as a failed run."""
        if self._emitter and self._run is None and error is not None:
            self._tell_start(self._emitter.new_run())
        if self._run is not None:
            with no_matter_what():
                self._count()
                self._emit(state, error)
            self._run = None

    def _count(self) -> bool:
        """Add the rows written since the last call, because counting all would take ever longer.

        Returns:
            Whether any table has a new version.
        """
        before = dict(self._seen)
        for table in self._flow.tables:
            since = before[table.name]
            self._seen[table.name], rows = _commits_since(self._settings, table, since)
            self._written[table.name] += rows
        return self._seen != before

    def _tell_start(self, run: str) -> None:
        self._run = StreamRun(self._namespace, self._job, run, self._flow)
        self._emit("START")

    def _emit(self, state: State, error: str | None = None) -> None:
        if self._emitter and self._run:
            with no_matter_what():
                self._due = time.monotonic() + self._pause
                written = {} if state == "START" else self._written
                self._emitter.stream(self._run, state, written, error)


@contextmanager
def no_matter_what() -> Iterator[None]:
    """Log any error of the block instead of raising it, because lineage must not stop the data."""
    try:
        yield
    except Exception as error:  # noqa: BLE001 - see above
        log.warning("lineage not reported", why=f"{type(error).__name__}: {error}")


def _opened(settings: LakeSettings, place: Place) -> DeltaTable:
    in_file = place.namespace == "file"
    return open_table(settings, place.name if in_file else f"{place.namespace}/{place.name}")


def _version(settings: LakeSettings, place: Place) -> int:
    """The version of a table; -1 if it does not exist yet."""
    with suppress(TableNotFoundError):
        return _opened(settings, place).version()
    return -1


def _commits_since(settings: LakeSettings, place: Place, since: int) -> tuple[int, int]:
    """The current version of a table, and the rows added or changed since the version `since`."""
    try:
        table = _opened(settings, place)
    except TableNotFoundError:
        return since, 0
    new = table.version() - since
    return table.version(), sum(
        int(commit.get("operationMetrics", {}).get(name, 0))
        for commit in (table.history(new) if new > 0 else ())
        for name in ROWS_WRITTEN.get(commit["operation"], ())
    )
