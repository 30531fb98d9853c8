"""Tests that a silver batch is redone if another writer commits to the same table meanwhile."""

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import structlog
from live_shop import until
from messages import item, message, order, user
from model import LakeModel
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from silver_lake import SilverLake

from silver.records import batch_stats
from silver.state import changelog

WAIT_SECONDS = 60


def wait_within(rows: DataFrame, barrier: Path) -> DataFrame:
    """Return the same rows, but let the first reader wait until `barrier`/go exists."""

    @F.udf("boolean", useArrow=False)
    def passes(_: Any) -> bool:  # in a Python worker, which cannot import the tests
        (barrier / "reached").touch()
        deadline = time.monotonic() + WAIT_SECONDS
        while not (barrier / "go").exists() and time.monotonic() < deadline:
            threading.Event().wait(0.05)
        return True

    # In one task, because the other writer needs a core; Spark may push other filters before it.
    return rows.coalesce(1).where(passes.asNondeterministic()("id"))


@pytest.mark.nightly
def test_a_batch_that_meets_another_writer_is_run_again_and_stays_exact(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake, model = SilverLake(spark, tmp_path / "home"), LakeModel()
    lake.settings = lake.settings.model_copy(update={"restarts": 1, "restart_delay": 0.1})
    monkeypatch.setattr(batch_stats, "FEW", 0)
    first = [message("users", n, n, user(n, lastName="FIRST")) for n in range(4)]
    for each in (first[:2], first[2:]):  # files to compact
        lake.put(each)
        lake.refine()
        model.batch(each)
    later = [message("users", 10 + n, n, user(n, lastName=f"later {n}")) for n in (0, 2, 7)]
    later += [message("items", 10, 0, item(0)), message("orders", 10, 0, order(0, 0, 7, 0))]
    lake.put(later)
    model.batch(later)

    merge: Callable[..., Any] = changelog.merge_later

    def merge_slowly(source: DataFrame, *rest: Any) -> Any:
        return merge(wait_within(source, tmp_path), *rest)

    monkeypatch.setattr(changelog, "merge_later", merge_slowly)
    table = f"delta.`{lake.settings.table_path('silver', 'users_state')}`"

    def write_too() -> None:
        until((tmp_path / "reached").exists, "the MERGE to read its source rows")
        spark.sql(f"OPTIMIZE {table}")
        spark.sql(f"UPDATE {table} SET last_name = upper(last_name)")
        (tmp_path / "go").touch()

    with ThreadPoolExecutor(1) as pool, structlog.testing.capture_logs() as told:
        other = pool.submit(write_too)
        lake.refine()
        other.result()
    [restart] = [each for each in told if each["event"] == "stream failed, restarting"]
    assert "DELTA_CONCURRENT" in restart["error"]
    assert lake.current("users") == model.current("users")
    assert lake.enriched() == model.enriched
    assert lake.audited() == model.messages
