"""Tests that events get the rows they refer to, at once or with a later batch."""

from pathlib import Path

import pytest
from messages import item, message, order, user
from model import LakeModel, Position
from pyspark.sql import SparkSession
from silver_lake import SilverLake

from silver.refine import Refinery


@pytest.fixture
def lake(spark: SparkSession, tmp_path: Path) -> SilverLake:
    return SilverLake(spark, tmp_path)


def test_an_early_order_is_incomplete_at_once_and_completed_by_the_next_batch(
    lake: SilverLake,
) -> None:
    """Invariants 4 and 8; ids may be 0."""
    lake.put([message("orders", 1, 1, order(1, 0, 0, 0)), message("items", 1, 0, item(0))])
    lake.refine()
    [row] = lake.enriched().values()
    assert row["user"] is None
    assert row["user_position"] is None
    assert row["item"]["id"] == 0
    lake.put([message("users", 1, 0, user(0)), message("items", 2, 0, item(0, price=99))])
    lake.refine()
    [row] = lake.enriched().values()
    assert row["user"]["email_address"] == "user0@example.org"
    assert row["user_position"] == Position(1, 1, 0, 0)
    assert row["item_position"] == Position(1, 1, 0, 0), "the item that was found before stays"


@pytest.mark.nightly
def test_a_batch_that_has_appended_its_orders_runs_again_without_a_merge(
    lake: SilverLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a kill between append and audit, a MERGE would have to read a large table."""
    known = [message("users", 1, 1, user(1)), message("items", 1, 1, item(1))]
    orders = [message("orders", n, n, order(n, 1, 1 + n % 2, 1)) for n in range(6)]
    model = LakeModel()

    def die(*_: object) -> None:
        message = "killed here"
        raise RuntimeError(message)

    for batch in (known, orders):
        lake.put(batch)
        model.batch(batch)
        with monkeypatch.context() as patch:
            patch.setattr(Refinery, "_write_audit", die)
            with pytest.raises(Exception, match="killed here"):
                lake.refine()
        monkeypatch.setattr("silver.enrichment.enrich._updates", die)
        lake.refine()
    assert lake.enriched() == model.enriched
    assert lake.current("users") == model.current("users")
