"""Fixtures with the suite's gold before and after changes, for all tests of gold."""

from pathlib import Path

import pytest
from collector import Collector
from gold_changes import Changes, change_recommendations, change_rewards, change_sales
from gold_checks import published
from gold_interrupted import Interrupted, Refused, interrupt, refuse
from shop_lake import ShopLake

from gold.build import build_gold
from gold.dbt.results import BuildResult
from lake.tables.lake import Lake


@pytest.fixture(scope="session")
def refused(
    gold: BuildResult,
    shop_lake: ShopLake,
    shop_files: Path,
    collector: Collector,
    tmp_path_factory: pytest.TempPathFactory,
) -> Refused:
    """The build after the first one, which was not published."""
    return refuse(shop_lake, shop_files, collector, tmp_path_factory.mktemp("refused"))


@pytest.fixture(scope="session")
def changes(
    refused: Refused,
    shop_lake: ShopLake,
    shop_files: Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> Changes:
    """Changes to the sources of rewards, recommendations and sales, with a new build of gold.

    That build must also recover from the failed build.
    """
    before = published(shop_lake.settings)
    change_rewards(shop_lake, shop_files, tmp_path_factory.mktemp("rewards"))
    fates = change_recommendations(shop_lake, shop_files, tmp_path_factory.mktemp("planted"))
    fates["unpaid"] = change_sales(shop_lake)
    build_gold(Lake(shop_lake.settings))
    return Changes(before, fates)


@pytest.fixture(scope="session")
def interrupted(
    changes: Changes,
    shop_lake: ShopLake,
    shop_files: Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> Interrupted:
    """A build that was killed and one that was disturbed, and then one that was published."""
    return interrupt(shop_lake, shop_files, tmp_path_factory.mktemp("interrupted"))
