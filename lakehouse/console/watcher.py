"""Reads the lake for all open pages, in two threads: one for tables, one for the broker.

However many pages are open, reading takes about a hundredth of a core: after each look a thread
rests for a multiple of the time that the look took, but no longer than a minute. While no page
is open, it looks seldom, so that the freshness of the last hour is known when one is opened.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections import deque
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field, replace

import structlog

from bronze.lag import topic_lag
from gold.dbt.manifest import Manifest
from gold.dbt.process import target_path
from gold.tables import CUTS as GOLD_CUTS
from gold.tables import RUNS, published_tables
from lake.streams.state import StreamState, stream_names, stream_states
from lake.tables.arrow import NewRows
from lake.tables.lake import Lake
from lake.tables.spec import bronze_table
from lake.tables.table import Table
from lakehouse.console.freshness import Freshness, Point
from lakehouse.console.graph import Graph, flow_graph
from pulsar_spark.broker.admin import PulsarAdmin
from pulsar_spark.errors import BrokerError, LakehouseError
from silver.audit.totals import AuditTotals
from silver.contract.tables import CUTS, RECONCILIATION, state_table

SOONEST, SELDOM = 2.0, 30.0  # seconds between two looks, with and without open pages
# Rest after a look, as a multiple of the processor time that it took. The threads of delta-rs and
# Arrow take about as much again, which is not counted.
REST = 300
LONGEST_REST = 60.0  # seconds; the first look at a large lake takes long, and later ones do not
PATIENCE = 4  # rest after a look, as a multiple of the time that it took
RECOUNT = 200  # rest before the rows of a state table are counted again, as a multiple
LASTING = 3  # failed looks, after which the log says so
ANSWER_SECONDS = 3.0
LIST_SECONDS = 10.0  # after which new tables are looked for
RATE_SECONDS = 10.0  # rows per second are averaged over this time
OWN_OF_GOLD = (GOLD_CUTS.full_name, RUNS.full_name)

log = structlog.get_logger()


@dataclass(frozen=True)
class TableSample:
    """What a look has found out about a table.

    rows: number of rows; for the state of a changelog, that of the keys that are not deleted.
    newest: when its newest message was published, in seconds since 1970; None if unknown.
    """

    rows: int
    size: int
    files: int
    version: int
    newest: float | None = None


@dataclass(frozen=True)
class Sample:
    """What the last looks have found out about the lake.

    at: when, in seconds since 1970.
    broker: whether the broker answers; None if it was not asked yet.
    lags: messages by topic that are not in bronze; absent if unknown.
    unrefined: messages by topic that are in bronze, but not in silver.
    rates: rows per second by table that arrived lately.
    quarantined: open records by topic.
    gold_at, gold_behind: when gold was published, and how many batches of silver it lacks.
    gold_since: when silver finished the first of these batches.
    problem: why the last look failed; empty if it did not.
    """

    at: float = 0.0
    broker: bool | None = None
    lags: dict[str, int] = field(default_factory=dict)
    tables: dict[str, TableSample] = field(default_factory=dict)
    unrefined: dict[str, int] = field(default_factory=dict)
    rates: dict[str, float] = field(default_factory=dict)
    streams: dict[str, StreamState] = field(default_factory=dict)
    quarantined: dict[str, int] = field(default_factory=dict)
    gold_at: float | None = None
    gold_behind: int = 0
    gold_since: float | None = None
    graph: Graph = field(default_factory=Graph)
    problem: str = ""


class Watcher:
    """Looks at a lake from time to time, and wakes the pages that wait for news."""

    def __init__(self, lake: Lake) -> None:
        self.sample = Sample()
        self.freshness = Freshness()
        self._lake = lake
        self._tables = _Tables(lake)
        self._broker = _Broker(lake)
        self._stop = threading.Event()
        self._wakes = [threading.Event(), threading.Event()]  # of each thread
        self._lock = threading.Lock()
        self._pages: set[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = set()
        self._threads = [
            threading.Thread(target=self._repeat, args=(look, wake), name=name, daemon=True)
            for name, look, wake in (
                ("console-tables", self._look, self._wakes[0]),
                ("console-broker", self._ask, self._wakes[1]),
            )
        ]

    def start(self) -> None:
        """Start looking."""
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Stop looking, and end the streams to pages."""
        self._stop.set()
        self.look_soon()
        self._tell()
        for thread in self._threads:
            thread.join(ANSWER_SECONDS + 2)

    @property
    def pages(self) -> int:
        """The number of pages that are open."""
        return len(self._pages)

    @property
    def is_stopped(self) -> bool:
        """Whether `stop` was called."""
        return self._stop.is_set()

    def look_soon(self) -> None:
        """Look again at once, because something was changed here."""
        for wake in self._wakes:
            wake.set()

    async def news(self) -> AsyncIterator[Sample]:
        """Yield the sample now and whenever there is a new one, until the watcher is stopped."""
        page = asyncio.get_running_loop(), asyncio.Event()
        with self._lock:
            self._pages.add(page)
        if self.pages == 1:
            self.look_soon()  # while no page was open, the threads have looked seldom
        try:
            while not self._stop.is_set():
                page[1].clear()
                yield self.sample
                await page[1].wait()
        finally:
            with self._lock:
                self._pages.discard(page)

    def _repeat(self, look: Callable[[], None], wake: threading.Event) -> None:
        failures = 0
        while not self._stop.is_set():
            begun, cpu = time.monotonic(), time.thread_time()
            try:
                look()
                failures = 0
            except Exception as error:  # noqa: BLE001 - a page says so, and the next look may work
                why, failures = f"{type(error).__name__}: {error}", failures + 1
                if failures == LASTING:  # a table may be replaced while it is read
                    log.warning("console cannot look at the lake", why=why)
                self._update(problem=why, at=time.time())
            took, used = time.monotonic() - begun, time.thread_time() - cpu
            least = SOONEST if self.pages else SELDOM
            wake.wait(min(LONGEST_REST, max(least, took * PATIENCE, used * REST)))
            wake.clear()

    def _look(self) -> None:
        found = self._tables.look()
        now = time.time()
        self._update(**found, at=now, problem="")
        self.freshness.add(_point(self.sample, self._tables.newest_batch))

    def _ask(self) -> None:
        self._update(**self._broker.look(self.sample))

    def _update(self, **changes: object) -> None:
        with self._lock:
            before = self.sample
            self.sample = replace(before, **changes)  # type: ignore[arg-type]
            is_news = self.sample != before
        if is_news:
            self._tell()

    def _tell(self) -> None:
        with self._lock:
            pages = [*self._pages]
        for loop, event in pages:
            with contextlib.suppress(RuntimeError):  # its server has ended
                loop.call_soon_threadsafe(event.set)


class _Tables:
    """Reads logs of tables, and a few small tables. Used by one thread.

    newest_batch: when silver finished its newest batch, in seconds since 1970.
    """

    def __init__(self, lake: Lake) -> None:
        self._lake = lake
        self._audit = AuditTotals(lake)
        self._known: dict[str, tuple[int, TableSample]] = {}
        self._states = {state_table(topic).full_name for topic in lake.topics.changelogs()}
        self._counts: dict[str, tuple[float, int, int]] = {}  # when due, version, rows
        self._before: deque[tuple[float, dict[str, int]]] = deque(maxlen=60)
        self._listed: dict[str, Table] = {}
        self._list_due = 0.0
        self._graph: tuple[object, Graph] = (None, Graph())
        self._cuts = NewRows(("silver_batch", "committed_at"), "committed_at")
        self._batches: list[tuple[int, float]] = []  # those that gold lacks, and when they ended
        self.newest_batch: float | None = None

    def look(self) -> dict[str, object]:
        """The parts of a sample that come from the lake."""
        lake = self._lake
        tables = self._all()
        found = {name: each for name, table in tables.items() if (each := self._sample(table))}
        unrefined, quarantined, counts = self._audited(found)
        gold = self._gold(found)
        return {
            "tables": found,
            "unrefined": unrefined,
            "quarantined": quarantined,
            "rates": self._rates(counts),
            "streams": {
                each.name: each for each in stream_states(lake.settings, stream_names(lake.topics))
            },
            "graph": self._graph_of([*tables]),
            **gold,
        }

    def _all(self) -> dict[str, Table]:
        """The tables to look at, which are listed now and then."""
        if time.monotonic() >= self._list_due:
            lake = self._lake
            bronze = [lake.table(bronze_table(name)) for name in lake.topics.topics]
            silver = [*lake.tables("silver").values()]
            found = [*bronze, *silver, *published_tables(lake)]
            self._listed = {table.full_name: table for table in found}
            self._list_due = time.monotonic() + LIST_SECONDS
        return self._listed

    def _sample(self, table: Table) -> TableSample | None:
        """The sample of a table, whose log is read only if there is a new version."""
        name, version = table.full_name, table.newest_version()
        if version < 0:
            return None
        known = self._known.get(name)
        if known is None or known[0] != version:
            # A changing table stays open: opening it again costs several times as much as reading
            # one more version.
            files = table.files() if known is None else table.arrow.files()
            newest = files.newest("publish_time")
            sample = TableSample(
                files.rows, files.size, files.count, version, newest.timestamp() if newest else None
            )
            known = self._known[name] = version, sample
        rows = self._live_rows(table, version) if name in self._states else known[1].rows
        return replace(known[1], rows=rows)

    def _live_rows(self, table: Table, version: int) -> int:
        """The rows of a state that are not deleted, which are counted again when it costs little.

        The statistics of its files also count deleted keys and former rows.
        """
        due, counted, rows = self._counts.get(table.full_name, (0.0, -1, 0))
        if counted != version and time.monotonic() >= due:
            begun = time.monotonic()
            rows = table.arrow.count("NOT is_deleted")
            now = time.monotonic()
            self._counts[table.full_name] = now + (now - begun) * RECOUNT, version, rows
        return rows

    def _audited(
        self, found: dict[str, TableSample]
    ) -> tuple[dict[str, int], dict[str, int], dict[str, int]]:
        """Messages that silver lacks and records in quarantine by topic, and rows by table."""
        topics = self._lake.topics
        if RECONCILIATION.full_name in found:
            self._audit.read()
        unrefined, quarantined = {}, {}
        counts = {name: each.rows for name, each in found.items()}
        for name, topic in topics.topics.items():
            done = self._audit.of_batches(name)["messages_in"]
            landed = found.get(f"bronze.{name}")
            if landed is not None:
                unrefined[name] = max(landed.rows - done, 0)
            quarantined[name] = self._audit.now(name)["quarantined"]
            if topic.kind == "changelog":
                counts[state_table(topic).full_name] = done  # rows are changed, too
        return unrefined, quarantined, counts

    def _rates(self, counts: dict[str, int]) -> dict[str, float]:
        now = time.monotonic()
        while len(self._before) > 1 and now - self._before[1][0] >= RATE_SECONDS:
            self._before.popleft()
        rates = {}
        if self._before:
            then, before = self._before[0]
            seconds = max(now - then, 0.001)
            rates = {
                name: max(count - before[name], 0) / seconds
                for name, count in counts.items()
                if name in before
            }
        self._before.append((now, counts))
        return rates

    def _gold(self, found: dict[str, TableSample]) -> dict[str, object]:
        """When gold was published, and what it lacks."""
        none: dict[str, object] = {"gold_at": None, "gold_behind": 0, "gold_since": None}
        if CUTS.full_name in found:
            rows, is_all = self._cuts.read(self._lake.table(CUTS).arrow)
            kept = [] if is_all else self._batches
            times = rows["committed_at"].to_pylist()
            numbers = rows["silver_batch"].to_pylist()
            new = [(n, at.timestamp()) for n, at in zip(numbers, times, strict=True)]
            self._batches = [*kept, *new]
            self.newest_batch = max((at for _, at in new), default=self.newest_batch)
        if GOLD_CUTS.full_name not in found:
            self._batches = self._batches[-1:]
            return none
        columns = ["published_at", "silver_batch"]
        last = self._lake.table(GOLD_CUTS).arrow.latest("published_at", columns)
        if last is None:
            return none
        self._batches = [each for each in self._batches if each[0] > last["silver_batch"]]
        return {
            "gold_at": last["published_at"].timestamp(),
            "gold_behind": len(self._batches),
            "gold_since": min((at for _, at in self._batches), default=None),
        }

    def _graph_of(self, names: list[str]) -> Graph:
        target = target_path(self._lake.settings)
        manifest = target / "manifest.json"
        key = tuple(names), manifest.stat().st_mtime if manifest.exists() else None
        if key != self._graph[0]:
            layers = ("bronze.", "silver.")
            published = [n for n in names if not n.startswith(layers) and n not in OWN_OF_GOLD]
            self._graph = key, flow_graph(self._lake, Manifest(target), published)
        return self._graph[1]


class _Broker:
    """Asks the broker how many messages have not landed. Used by one thread."""

    def __init__(self, lake: Lake) -> None:
        self._lake = lake
        self._admin: PulsarAdmin | None = None

    def look(self, sample: Sample) -> dict[str, object]:
        """The parts of a sample that come from the broker."""
        try:
            if self._admin is None:
                self._admin = PulsarAdmin(self._lake.settings.connection, ANSWER_SECONDS)
            if not self._admin.is_healthy():
                return {"broker": False, "lags": {}}
            lags = {}
            for name in self._lake.topics.topics:
                landed = sample.tables.get(f"bronze.{name}")
                try:
                    lag = topic_lag(self._admin, self._lake, name)
                    lags[name] = lag.messages(landed.rows if landed else 0)
                except LakehouseError as error:
                    if type(error) is BrokerError:  # it no longer answers
                        raise
                    # Otherwise, the topic does not exist yet, or may not be read.
        except LakehouseError:
            if self._admin is not None:
                self._admin.close()
                self._admin = None
            return {"broker": False, "lags": {}}
        return {"broker": True, "lags": lags}


def _point(sample: Sample, batch_at: float | None) -> Point:
    """What the freshness is computed from."""
    bronze = [each.newest for name, each in sample.tables.items() if name.startswith("bronze.")]
    return Point(
        at=sample.at,
        unread=sum(sample.lags.values()) if sample.broker else None,
        landed_to=max((each for each in bronze if each is not None), default=None),
        unrefined=sum(sample.unrefined.values()),
        refined_at=batch_at,
        unpublished_since=sample.gold_since,
        is_published=sample.gold_at is not None,
    )
