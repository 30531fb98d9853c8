"""Fixtures with the suite's gold before and after changes, for all tests of gold."""

import subprocess
from pathlib import Path

import pytest
from collector import Collector
from gold_changes import Changes, change_recommendations, change_rewards
from gold_checks import published
from gold_refused import Refused, bare_dbt, build_beside, refuse
from shop_lake import ShopLake

from gold.dbt.results import BuildResult


@pytest.fixture(scope="session")
def refused(
    gold: BuildResult,
    shop_lake: ShopLake,
    shop_files: Path,
    collector: Collector,
    tmp_path_factory: pytest.TempPathFactory,
) -> Refused:
    """The builds after the first one, none of which was published."""
    return refuse(shop_lake, shop_files, collector, tmp_path_factory.mktemp("refused"))


@pytest.fixture(scope="session")
def changes(
    refused: Refused,
    shop_lake: ShopLake,
    shop_files: Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> Changes:
    """Changes to the sources of rewards and recommendations, with a new build of gold.

    That build must also recover from the failed builds and tolerate a plain dbt run beside it.
    """
    before = published(shop_lake.settings)
    change_rewards(shop_lake, shop_files, tmp_path_factory.mktemp("rewards"))
    fates = change_recommendations(shop_lake, shop_files, tmp_path_factory.mktemp("planted"))
    ended: list[subprocess.CompletedProcess[str]] = []

    def work_beside() -> None:
        folder = tmp_path_factory.mktemp("bare")
        own = "stg_users stg_items +int_order_lines"
        ended.append(bare_dbt(shop_lake.settings, folder, "gold_build_ann", own))

    build_beside(shop_lake.settings, work_beside)
    return Changes(before, fates, ended[0])
