"""Builds of gold that are not published, and builds beside other processes.

A dbt test fails, dbt is killed, another process writes to `gold_build`, and the clock is set back.
"""

import csv
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from collector import Collector, Event
from deltalake import DeltaTable
from gold_checks import published, versions
from live_shop import until
from planted_shop import write_rows
from shop_lake import ShopLake

from gold.build import build_gold, prepare_build
from gold.dbt.process import target_path
from gold.dbt.results import BuildResult
from gold.errors import BuildError, GoldError
from gold.lock import alone
from gold.sql_client import query_endpoint
from gold.tables import RUNS
from lake.quoting import delta_at
from lake.settings.settings import SHOP_DBT, LakeSettings
from lake.tables.lake import Lake
from lake.tables.spec import APPEND_ONLY

# A test of the last column of stg_items, its price, which becomes a constraint of the table.
FREE = """
        data_tests:
          - accepted_range:
              arguments: {max_value: 0}
"""

BY_BUILD = ("MERGE", "WRITE")  # rows that are all new are appended

Readable = tuple[dict[str, list[str]], dict[str, int]]


class Refused(NamedTuple):
    """The rows and versions that readers saw before and after a build with failed tests.

    runs: the failed nodes in the runs table. told: lineage events of the failed build.
    """

    readable: Readable
    readable_when_failed: Readable
    error: BuildError
    runs: list[dict[str, Any]]
    told: list[Event]


class Interrupted(NamedTuple):
    """The rows and versions that readers saw, and the results of the processes.

    disturbed: the error of a build during which another process restored one of its tables. bare:
    a plain dbt run in the same schema at the same time. own: a plain dbt run in its own schema,
    beside a build that is published.
    """

    readable: Readable
    readable_when_killed: Readable
    readable_when_disturbed: Readable
    disturbed: str
    bare: subprocess.CompletedProcess[str]
    own: subprocess.CompletedProcess[str]


class Staged:
    """`gold_build.stg_orders`, from whose commits a test sees how far a build has come."""

    def __init__(self, settings: LakeSettings) -> None:
        self._path = settings.table_path("gold_build", "stg_orders")
        self._before: int = self.last_commit()["version"]

    def last_commit(self) -> dict[str, Any]:
        return DeltaTable(self._path).history(1)[0]

    def is_changed(self) -> bool:
        """Whether the last commit since the start is the build's, not a repair before it."""
        last = self.last_commit()
        return bool(last["version"] > self._before and last["operation"] in BY_BUILD)


def refuse(lake: ShopLake, shop_files: Path, collector: Collector, folder: Path) -> Refused:
    """Set the clock back, publish one more order, and build gold with two tests that fail."""
    settings = lake.settings
    _a_day_ahead(lake, "silver", "cuts", "committed_at")
    _a_day_ahead(lake, "gold", "cuts", "published_at")
    _order_once_more(lake, shop_files, folder, "88888888")
    readable = _readable(settings)

    project = folder / "project"
    shutil.copytree(SHOP_DBT, project)
    never = (
        "select invoice_id, price from {{ ref('stg_orders') }}"  # early: most models are skipped
    )
    (project / "tests" / "assert_nothing_is_sold.sql").write_text(never)
    with (project / "models" / "staging" / "stg_items.yml").open("a") as items:
        items.write(FREE)
    other = settings.model_copy(update={"dbt_project": project})
    with pytest.raises(BuildError) as error:
        build_gold(Lake(other))
    # dbt would take the older file of the real project for the one that it has read.
    (target_path(settings) / "partial_parse.msgpack").unlink()
    when_failed = _readable(settings)
    failed, columns = "status IN ('fail', 'error')", ["name", "outcome", "message"]
    runs = Lake(settings).table(RUNS).arrow.rows(columns, failed)
    told = [collector.of(job)[-1] for job in ("gold", "test.lakehouse.assert_nothing_is_sold")]
    return Refused(readable, when_failed, error.value, runs, told)


def interrupt(lake: ShopLake, shop_files: Path, folder: Path) -> Interrupted:
    """Publish one more order; kill a build, disturb a second, and work beside a third."""
    settings = lake.settings
    _order_once_more(lake, shop_files, folder, "77777777")
    readable = _readable(settings)

    staged = Staged(settings)
    command = [sys.executable, "-m", "gold", "--available-now"]
    with subprocess.Popen(command, env=environment(settings), start_new_session=True) as running:
        try:
            until(staged.is_changed, "the run's orders")
        finally:
            os.killpg(running.pid, signal.SIGKILL)
    when_killed = _readable(settings)

    ended: list[subprocess.CompletedProcess[str]] = []

    def disturb() -> None:
        ended.append(bare_dbt(settings, folder / "bare", "gold_build", "stg_orders"))
        last = staged.last_commit()
        sql = f"restore table gold_build.stg_orders to version as of {last['version'] - 1}"
        assert last["operation"] in BY_BUILD, "the last commit is not the build's"
        query_endpoint(settings, sql)

    with pytest.raises(GoldError) as disturbed:
        build_beside(settings, disturb)
    when_disturbed = _readable(settings)

    def work_beside() -> None:
        own = "stg_users stg_items +int_order_lines"
        ended.append(bare_dbt(settings, folder / "own", "gold_build_ann", own))

    build_beside(settings, work_beside)
    return Interrupted(readable, when_killed, when_disturbed, str(disturbed.value), *ended)


def build_beside(settings: LakeSettings, act: Callable[[], None]) -> BuildResult:
    """Build and publish gold; dbt is paused while `act` runs, once the orders are staged."""
    with alone(settings), prepare_build(Lake(settings)) as build, ThreadPoolExecutor(1) as thread:
        staged = Staged(settings)
        running = thread.submit(build.run)
        until(lambda: running.done() or staged.is_changed(), "the build's orders")
        if not running.done():
            os.kill(build.process.pid, signal.SIGSTOP)
            try:
                act()
            finally:
                os.kill(build.process.pid, signal.SIGCONT)
        return running.result()


def bare_dbt(
    settings: LakeSettings, folder: Path, schema: str, select: str
) -> subprocess.CompletedProcess[str]:
    """Run `dbt build` as an analytics engineer does."""
    own = {"DBT_TARGET_PATH": str(folder / "target"), "DBT_LOG_PATH": str(folder / "logs")}
    return subprocess.run(
        [Path(sys.executable).with_name("dbt"), "build", "--select", select],
        cwd=SHOP_DBT,
        env=environment(settings) | own | {"LAKEHOUSE_DBT_SCHEMA": schema},
        capture_output=True,
        text=True,
        check=False,
    )


def environment(settings: LakeSettings) -> dict[str, str]:
    return {
        **os.environ,
        "LAKEHOUSE_HOME": str(settings.home_dir),
        "LAKEHOUSE_LAKE": str(settings.lake_dir),
        "LAKEHOUSE_SQL_PORT": str(settings.sql_port),
        "LAKEHOUSE_TOPICS": str(settings.topics),
    }


def _order_once_more(lake: ShopLake, shop_files: Path, folder: Path, line_item_id: str) -> None:
    more = folder / "more"
    more.mkdir()
    with (shop_files / "orders.csv").open() as lines:
        line = next(line for line in csv.DictReader(lines) if line["paid_at"])
    write_rows(more / "orders.csv", [{**line, "line_item_id": line_item_id}])
    lake.fill(more)


def _readable(settings: LakeSettings) -> Readable:
    return published(settings), versions(settings)


def _a_day_ahead(lake: ShopLake, layer: str, table: str, instant: str) -> None:
    """Move the recorded times a day ahead, as if the clock had just been set back."""
    place = delta_at(lake.settings.table_path(layer, table))
    lake.spark.sql(f"ALTER TABLE {place} SET TBLPROPERTIES ({APPEND_ONLY} = false)")
    lake.spark.sql(f"UPDATE {place} SET {instant} = {instant} + INTERVAL 1 DAY")
    lake.spark.sql(f"ALTER TABLE {place} SET TBLPROPERTIES ({APPEND_ONLY} = true)")
