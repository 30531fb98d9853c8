"""Tests that commands that write gold's tables exclude each other, and never wait silently."""

import datetime as dt
from collections.abc import Callable
from typing import Any, cast

import pytest
from pyspark.sql import SparkSession

from gold.build import build_gold
from gold.errors import GoldError
from gold.lock import alone
from lake.settings.settings import LakeSettings
from lake.streams.checkpoint import claim
from lake.tables.lake import Lake
from lake.topics.topic_file import load_topics
from lakehouse.operate import savepoints
from lakehouse.operate.reset import reset
from silver.refine import QUERY

NO_SPARK = cast(SparkSession, None)  # each command is refused before it needs one


def restore(settings: LakeSettings) -> None:
    savepoints.restore(NO_SPARK, Lake(settings), "then")


def start_over(settings: LakeSettings) -> None:
    reset(Lake(settings))


def build(settings: LakeSettings) -> None:
    build_gold(Lake(settings))


@pytest.fixture
def lake(tmp_path: Any) -> LakeSettings:
    """A lake with a savepoint, but without a broker or an endpoint."""
    settings = LakeSettings(home=tmp_path, sql_port=1, pulsar_admin_url="http://127.0.0.1:1")
    then = dt.datetime(2026, 1, 1, tzinfo=dt.timezone.utc)
    places = {f"bronze.{topic}": None for topic in load_topics(settings.topics).topics}
    moment = savepoints.Savepoint(
        name="then", created_at=then, silver_batch=0, versions={}, places=places
    )
    file = settings.lake_dir / "_savepoints" / "then.json"
    file.parent.mkdir(parents=True)
    file.write_text(moment.model_dump_json())
    return settings


@pytest.mark.parametrize("command", [restore, start_over, build])
def test_a_command_that_writes_gold_is_refused_while_another_one_runs(
    command: Callable[[LakeSettings], object], lake: LakeSettings
) -> None:
    there = sorted(lake.lake_dir.rglob("*"))
    with (
        alone(lake),
        pytest.raises(GoldError, match="Another process is building or restoring gold"),
    ):
        command(lake)
    assert sorted(lake.lake_dir.rglob("*")) == there


def test_gold_is_not_built_from_a_half_restored_lake(lake: LakeSettings) -> None:
    checkpoint = claim(lake, QUERY)
    checkpoint.expect("lakehouse savepoint restore then")
    checkpoint.release()
    with pytest.raises(GoldError, match="`lakehouse savepoint restore then` was interrupted"):
        build(lake)
