"""Lineage: tells an OpenLineage collector which jobs read and write which topics and tables.

A stream is a job; each start of its query is a run of it, which begins with a START event and ends
with COMPLETE (it has caught up, or was told to stop), FAIL or ABORT (stopped within a batch). In
between, RUNNING tells of what it has written. Nothing of this stops or slows a stream: events are
sent by a thread of their own (`lineage_events.py`), and a collector that is away is logged once.
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
from pyspark.sql.streaming.query import StreamingQuery

from bronze.declarations import Topic
from bronze.errors import SettingsError
from bronze.settings import LakeSettings
from bronze.storage import in_bucket, open_table
from bronze.tables import TableSpec

if TYPE_CHECKING:
    from bronze.lineage_events import Emitter

State = Literal["START", "RUNNING", "COMPLETE", "ABORT", "FAIL"]

log = structlog.get_logger()

# Of a commit, by its operation: which of its metrics count rows that are new or changed.
ROWS_WRITTEN = {
    "WRITE": ("numOutputRows", "num_added_rows"),  # Spark's word, and that of delta-rs
    "STREAMING UPDATE": ("numOutputRows",),
    "MERGE": ("numTargetRowsInserted", "numTargetRowsUpdated"),
}


@dataclass(frozen=True)
class Place:
    """A topic or a table, by the name that each job knows it by, so that their graphs join.

    columns: name, type and meaning of each.
    alias: of a table, namespace and name that SQL clients know it by.
    """

    namespace: str
    name: str
    comment: str = ""
    columns: tuple[tuple[str, str, str | None], ...] = ()
    alias: tuple[str, str] | None = None


def topic_place(settings: LakeSettings, topic: Topic) -> Place:
    """A topic of the broker. The OpenLineage specification names no Pulsar; this is as of Kafka."""
    columns = tuple((name, spec.type, None) for name, spec in topic.fields.items())
    hosts = settings.pulsar_url.partition("://")[2]
    return Place(f"pulsar://{hosts}", settings.full_topic(topic.name), columns=columns)


def table_place(settings: LakeSettings, table: TableSpec) -> Place:
    """A table of the lake, by its folder, or by its bucket and the address there."""
    columns = tuple((column.name, column.type, column.comment) for column in table.columns)
    place = table_at(settings, table.layer, table.name)
    return replace(place, comment=table.comment, columns=columns)


def table_at(settings: LakeSettings, layer: str, name: str) -> Place:
    """The same of a table that we have no contract of."""
    endpoint = f"spark://{settings.sql_host}:{settings.sql_port}"  # as dbt-ol calls it
    path = PurePosixPath(settings.table_path(layer, name))
    namespace, place = "file", str(path)
    if in_bucket(settings):  # PurePosixPath: s3:, the bucket, and what is below
        namespace, place = f"s3://{path.parts[1]}", "/".join(path.parts[2:])
    return Place(namespace, place, alias=(endpoint, f"{layer}.{name}"))


@dataclass(frozen=True)
class Flow:
    """What a stream reads and which tables it writes."""

    inputs: tuple[Place, ...]
    outputs: tuple[Place, ...]


def emitter(settings: LakeSettings) -> Emitter | None:
    """What sends events, None if no lineage is wanted.

    Raises:
        SettingsError: it is wanted, and cannot be sent as things are.
    """
    if not settings.lineage:
        return None
    try:
        from bronze.lineage_events import the_emitter
    except ImportError as error:
        message = (
            "LAKEHOUSE_LINEAGE is on, and OpenLineage's packages are not installed. Install the "
            f"extra `lineage` (pip install 'orders-lakehouse[lineage]'), or switch it off: {error}."
        )
        raise SettingsError(message) from error
    return the_emitter()


@dataclass(frozen=True)
class StreamRun:
    """One run of a stream: its job, and the id by which Spark knows it too."""

    namespace: str
    job: str
    id: str
    flow: Flow


class StreamRuns:
    """The runs of a stream, one after the other; says nothing without a flow or where it is off.

    Raises:
        SettingsError: lineage is wanted, and cannot be sent as things are.
    """

    def __init__(self, settings: LakeSettings, job: str, flow: Flow | None) -> None:
        self._namespace = settings.lineage_namespace
        self._pause = settings.lineage_seconds
        self._job = job
        self._flow = flow or Flow((), ())
        self._emitter = emitter(settings) if flow else None
        self._run: StreamRun | None = None
        self._settings = settings
        self._seen: dict[str, int] = {}  # by table: the version up to which rows are counted
        self._written: dict[str, int] = {}  # by table: rows since the run began
        self._due = 0.0

    def begin(self) -> None:
        """Before the query starts, and so before anything is written."""
        if self._emitter:
            with no_matter_what():
                outputs = self._flow.outputs
                self._seen = {table.name: _version(self._settings, table) for table in outputs}
                self._written = dict.fromkeys(self._seen, 0)

    def started(self, query: StreamingQuery) -> None:
        """The query runs."""
        if self._emitter:
            self._tell_start(str(query.runId))

    def look(self) -> None:
        """Now and then, while the query runs: tell what it has written since."""
        if self._emitter and self._run and time.monotonic() >= self._due:
            with no_matter_what():
                self._due = time.monotonic() + self._pause
                if self._count():
                    self._tell("RUNNING")

    def ended(self, state: State, error: str | None = None) -> None:
        """The query has ended; one that could not be started is told as a run that has failed."""
        if self._emitter and self._run is None and error is not None:
            self._tell_start(self._emitter.new_run())
        if self._run is not None:
            with no_matter_what():
                self._count()
                self._tell(state, error)
            self._run = None

    def _count(self) -> bool:
        """Count what was written since the last call, as reading all again would take ever longer.

        Returns:
            Whether a table has another version now.
        """
        before = dict(self._seen)
        for table in self._flow.outputs:
            since = before[table.name]
            self._seen[table.name], rows = _commits_since(self._settings, table, since)
            self._written[table.name] += rows
        return self._seen != before

    def _tell_start(self, run: str) -> None:
        self._run = StreamRun(self._namespace, self._job, run, self._flow)
        self._tell("START")

    def _tell(self, state: State, error: str | None = None) -> None:
        if self._emitter and self._run:
            with no_matter_what():
                self._due = time.monotonic() + self._pause
                written = {} if state == "START" else self._written
                self._emitter.stream(self._run, state, written, error)


@contextmanager
def no_matter_what() -> Iterator[None]:
    """What is wrong with lineage is not wrong with the data."""
    try:
        yield
    except Exception as error:  # noqa: BLE001 - as said
        log.warning("lineage not told", why=f"{type(error).__name__}: {error}")


def _opened(settings: LakeSettings, place: Place) -> DeltaTable:
    in_file = place.namespace == "file"
    return open_table(settings, place.name if in_file else f"{place.namespace}/{place.name}")


def _version(settings: LakeSettings, place: Place) -> int:
    """The version of a table; -1 where there is none yet."""
    with suppress(TableNotFoundError):
        return _opened(settings, place).version()
    return -1


def _commits_since(settings: LakeSettings, place: Place, since: int) -> tuple[int, int]:
    """The version of a table, and the rows that its commits after another have added or changed."""
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
