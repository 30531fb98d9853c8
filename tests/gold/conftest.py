"""Fixtures with the suite's gold before and after changes, for all tests of gold."""

import datetime as dt
from pathlib import Path

import pytest
from collector import Collector
from gold_changes import (
    Changes,
    Waited,
    build_waiting,
    change_recommendations,
    change_rewards,
    change_sales,
)
from gold_checks import assert_gold_is_right, published
from gold_interrupted import Interrupted, Refused, interrupt, refuse
from shop_lake import ShopLake

from gold.build import build_gold
from gold.dbt.results import BuildResult
from lake.tables.lake import Lake


@pytest.fixture(scope="session")
def waited(
    gold: BuildResult,
    shop_lake: ShopLake,
    shop_files: Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> Waited:
    """The builds after the first one, with changes of rewards between the first and these."""
    settings, hour = shop_lake.settings, dt.timedelta(hours=1)
    before = published(settings)
    change_rewards(shop_lake, shop_files, tmp_path_factory.mktemp("rewards"))
    waiting = build_waiting(settings, 0 * hour), published(settings)
    due = build_waiting(settings, hour), published(settings)
    assert_gold_is_right(shop_lake)
    return Waited(before, waiting, due)


@pytest.fixture(scope="session")
def refused(
    waited: Waited,
    shop_lake: ShopLake,
    shop_files: Path,
    collector: Collector,
    tmp_path_factory: pytest.TempPathFactory,
) -> Refused:
    """The build after these, which was not published."""
    return refuse(shop_lake, shop_files, collector, tmp_path_factory.mktemp("refused"))


@pytest.fixture(scope="session")
def changes(
    refused: Refused,
    waited: Waited,
    shop_lake: ShopLake,
    shop_files: Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> Changes:
    """Changes to the sources of rewards, recommendations and sales, with a new build of gold.

    That build must also recover from the failed build.
    """
    fates = change_recommendations(shop_lake, shop_files, tmp_path_factory.mktemp("planted"))
    fates["unpaid"] = change_sales(shop_lake)
    build_gold(Lake(shop_lake.settings))
    return Changes(waited.before, fates)


@pytest.fixture(scope="session")
def interrupted(
    changes: Changes,
    shop_lake: ShopLake,
    shop_files: Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> Interrupted:
    """A build that was killed and one that was disturbed, and then one that was published."""
    return interrupt(shop_lake, shop_files, tmp_path_factory.mktemp("interrupted"))
