"""Runs the phases of the benchmark on one system, and collects the figures."""

import multiprocessing
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import duckdb
import numpy as np
import psutil
from numpy.typing import NDArray
from structlog import get_logger

from benchmarks.bronze import peak
from benchmarks.flink import shop
from benchmarks.flink.commits import Log, Tracker, query
from benchmarks.flink.processes import SAMPLE_SECONDS
from benchmarks.flink.systems import System
from benchmarks.silver import order, send
from lake.tables.lake import Lake
from lake.topics.topic_file import TopicFile
from lakehouse.messages.publish import create_topics

CATCH_UP_SECONDS = 400
MEGABYTE = 1_000_000

log = get_logger()

ROWS = """SELECT invoice_id, line_item_id, user_id, item_id, item_name, item_category, price,
  epoch_ms(created_at::TIMESTAMPTZ) AS created_ms, "user".id, "user".first_name, "user".last_name,
  "user".email_address, epoch_ms("user".created_at::TIMESTAMPTZ), item.id, item.name,
  item.category, item.price
FROM rows"""


@dataclass(frozen=True)
class Plan:
    """The size of each phase. The rate is in orders a second, times are in seconds."""

    orders: int
    users: int
    rate: int
    seconds: int
    warm_up: int
    recovery: int

    def total(self, kills: int, lives: int) -> int:
        """Number of orders published in total, with that many kills and live phases."""
        seconds = lives * (self.warm_up + self.seconds) + kills * self.recovery
        return self.orders + self.rate * seconds


@dataclass(frozen=True)
class Figure:
    """A measured value.

    form: format specification for printing. ahead: 1 if more is better, -1 if less is better.
    beside: name of the other system's figure to compare with, if it differs.
    """

    value: float
    form: str
    ahead: int = -1
    beside: str = ""


@dataclass
class Trial:
    """Runs a plan on one system. `figures` are by name, in the order in which they are measured."""

    system: System
    plan: Plan
    figures: dict[str, Figure] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.total = self.plan.total(len(self.system.kills), 1 + len(self.system.paces))
        self.tracker = Tracker(self.total)
        self.commits: Log = self.system.log()
        self.sent = self.plan.orders

    def run(self, topics: TopicFile, broker: int) -> None:
        """Run all phases in order, and stop the system. `broker` is the broker's process id."""
        create_topics(Lake(self.system.settings, topics))
        shop.fill(self.system.settings, self.plan.orders, self.plan.users)
        try:
            self._backfill(psutil.Process(broker))
            self._live()
            self._complete()
            for what in self.system.kills:
                self._recover(what)
            for trigger in self.system.paces:
                self.system.pace(trigger)
                self._live(f", batches each {trigger}")
        finally:
            self.system.processes.stop()

    def check(self) -> tuple[int, int, int, int]:
        """Number of rows expected, rows found, expected rows not found, and unexpected rows."""
        rows = query(ROWS, self.commits.live())
        found = duckdb.from_arrow(rows)
        wanted = duckdb.from_arrow(shop.expected(self.total, self.plan.users))
        missing, extra = len(wanted.except_(found)), len(found.except_(wanted))
        return self.total, rows.num_rows, missing, extra

    def _backfill(self, broker: psutil.Process) -> None:
        plan, processes = self.plan, self.system.processes
        known = shop.late(plan.users).start
        due = np.array([order(n, plan.users)["userId"] < known for n in range(plan.orders)])
        brokers = broker.cpu_times()
        begun = time.time()
        with peak(processes.memory, SAMPLE_SECONDS) as largest:
            self.system.start()
            started = time.time() - begun
            self._wait(lambda: self._all_readable(due), "all orders of the backfill readable")
        took = np.nanmax(self._first_complete(due)) - begun
        spent, after = processes.cpu_seconds(), broker.cpu_times()
        served = after.user + after.system - brokers.user - brokers.system
        self._add("backfill: orders/s, start included", plan.orders / took, ",.0f", 1)
        self._add("backfill: seconds", took, ".1f")
        self._add("backfill: of these until it runs", started, ".1f")
        self._add("backfill: CPU s per million orders", spent / plan.orders * 1e6, ",.0f")
        self._add("backfill: broker's CPU s per million", served / plan.orders * 1e6, ",.0f")
        self._add("backfill: peak memory, MB", largest[0] / MEGABYTE, ",.0f")
        for what, size in self.system.sizes().items():
            self._add(f"disk after the backfill: {what}, MB", size / MEGABYTE, ",.0f")

    def _all_readable(self, due: NDArray[np.bool_]) -> bool:
        return bool(np.isfinite(self._first_complete(due)).all())

    def _first_complete(self, due: NDArray[np.bool_]) -> NDArray[np.float64]:
        """When each backfill order became readable, with its user if that user was published."""
        head = slice(0, self.plan.orders)
        return np.where(due, self.tracker.completed[head], self.tracker.arrived[head])

    def _live(self, pace: str = "") -> None:
        plan, processes = self.plan, self.system.processes
        with peak(processes.memory, SAMPLE_SECONDS) as largest:
            first = self._publish(plan.warm_up)
            self._await_arrival(first)
            before = processes.cpu_seconds()
            first = self._publish(plan.seconds)
            self._await_arrival(first)
            spent = (processes.cpu_seconds() - before) / (self.sent - first)
        ages = (self.tracker.arrived - self.tracker.published)[first : self.sent]
        for name, value, form in (
            ("freshness p50, s", float(np.quantile(ages, 0.5)), ".2f"),
            ("freshness p99, s", float(np.quantile(ages, 0.99)), ".2f"),
            ("CPU s per million orders", spent * 1e6, ",.0f"),
            ("peak memory, MB", largest[0] / MEGABYTE, ",.0f"),
        ):
            beside = f"at {plan.rate:,}/s"
            self._add(f"{beside}{pace}: {name}", value, form, beside=f"{beside}: {name}")

    def _complete(self) -> None:
        """Publish the late users, and wait until the rows that lacked them are complete."""
        begun = time.time()
        shop.publish(self.system.settings, "users", shop.user, shop.late(self.plan.users))
        self._wait(
            lambda: bool(np.isfinite(self.tracker.completed[: self.sent]).all()),
            "all orders of late users completed",
        )
        took = float(np.nanmax(self.tracker.completed)) - begun
        self._add("late users: all rows completed, s", took, ".1f")

    def _recover(self, what: str) -> None:
        """Kill while orders arrive, restart at once, and measure until new orders are readable."""
        sender = self._sender(self.plan.recovery)
        first = self.sent
        self.sent += self.plan.rate * self.plan.recovery
        self._wait(
            lambda: bool(np.isfinite(self.tracker.arrived[first : self.sent]).any()),
            "the stream going before the kill",
        )
        killed = time.time()
        self.system.kill(what)
        self.system.restart(what)
        sender.join()
        self._await_arrival(first)
        later = self.tracker.published >= killed
        took = float(self.tracker.arrived[later].min()) - killed
        ages = (self.tracker.arrived - self.tracker.published)[first : self.sent]
        self._add(f"kill -9 of {what}: recovery, s", took, ".1f")
        self._add(f"kill -9 of {what}: oldest order, s", float(ages.max()), ".1f")

    def _publish(self, seconds: int) -> int:
        """Publish at the plan's rate for these seconds. Returns the number of the first order."""
        first = self.sent
        sender = self._sender(seconds)
        self.sent += self.plan.rate * seconds
        while sender.is_alive():
            self.tracker.follow(self.commits)
            sender.join(0.5)
        return first

    def _sender(self, seconds: int) -> multiprocessing.process.BaseProcess:
        sender = multiprocessing.get_context("spawn").Process(
            target=send,
            args=(self.system.settings, self.plan.rate, seconds, self.plan.users, self.sent),
        )
        sender.start()
        return sender

    def _await_arrival(self, first: int) -> None:
        self._wait(
            lambda: bool(np.isfinite(self.tracker.arrived[first : self.sent]).all()),
            "all live orders readable",
        )

    def _wait(self, done: Callable[[], bool], what: str) -> None:
        self.tracker.wait(self.commits, done, CATCH_UP_SECONDS, what)

    def _add(self, name: str, value: float, form: str, ahead: int = -1, beside: str = "") -> None:
        self.figures[name] = Figure(value, form, ahead, beside)
        log.info(name, system=self.system.name, value=format(value, form))
